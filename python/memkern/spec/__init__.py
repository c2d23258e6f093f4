"""What can be measured, with which options, and what a record says: plain data."""
