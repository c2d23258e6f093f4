"""McCalpin's STREAM."""
