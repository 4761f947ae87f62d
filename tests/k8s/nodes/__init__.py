"""What is asked of single nodes, and changed on them."""
