"""Gather and scatter, as Spatter measures them."""

PUBLIC = {
    "gather": "kernels:gather",
    "scatter": "kernels:scatter",
    "gs": "kernels:gs",
    "multigather": "kernels:multigather",
    "multiscatter": "kernels:multiscatter",
    "suites": "suites",
}
