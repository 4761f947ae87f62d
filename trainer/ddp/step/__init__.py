"""What one step is made of: precision, ranks, optimizer, schedule, and the average of the weights.

Each part is chosen by an argument and knows none of the others; the learner puts them together.
"""
