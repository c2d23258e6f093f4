"""Messages between ranks."""

PUBLIC = {"messages": "kernels:messages", "halo_time": "model:halo_time"}
