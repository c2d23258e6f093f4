"""McCalpin's STREAM."""

PUBLIC = {"stream": "kernels:stream"}
