"""A large cluster of make-believe: objects of realistic size, a storm of updates, the truth about both."""
