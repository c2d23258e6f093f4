"""Spack's package `py-memkern`, with values of the release that tools/release.py enters."""

from spack_repo.builtin.build_systems.cuda import CudaPackage
from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyMemkern(PythonPackage, CudaPackage):
    """Measures how fast a machine really moves data."""

    pypi = "memkern/memkern-@version@.tar.gz"

    license("MIT")

    version("@version@", sha256="@sha256@")

    variant("mpi", default=False, description="Build the kernels on memory of other ranks")

    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("py-scikit-build-core@0.10.7:", type="build")
    depends_on("py-pybind11@2.12:", type="build")
    depends_on("highway@1.0.3:", type=("build", "link"))
    depends_on("hwloc@2.9:", type=("build", "link"))

    with default_args(type=("build", "run")):
        depends_on("python@3.10:")
        depends_on("py-numpy@1.25:")
        depends_on("py-scipy@1.12:")
        depends_on("py-pandas@2.0:")
        depends_on("py-pyarrow@14:")
        depends_on("py-matplotlib@3.8:")
        depends_on("py-jinja2@3.1:")
        depends_on("py-tqdm@4.65:")
        depends_on("py-cloudpickle@2.2:")
        depends_on("py-tomli@2:", when="^python@:3.10")
        depends_on("py-nvidia-ml-py@12:", when="+cuda")
        depends_on("py-mpi4py@4.1:", when="+mpi")

    # Parquet files, with the compression that pyarrow chooses.
    depends_on("arrow+parquet+snappy")
    depends_on("mpi", when="+mpi")
    depends_on("cuda@12:", when="+cuda")

    conflicts("%gcc@:11")
    conflicts("%clang@:13")

    def config_settings(self, spec, prefix):
        """Pass the variants to CMake."""

        def switch(variant):
            return "ON" if spec.satisfies(variant) else "OFF"

        settings = {
            "cmake.define.MEMKERN_CUDA": switch("+cuda"),
            "cmake.define.MEMKERN_MPI": switch("+mpi"),
            "cmake.define.MEMKERN_SHMEM": "OFF",
        }
        if spec.satisfies("+cuda") and not spec.satisfies("cuda_arch=none"):
            architectures = ";".join(spec.variants["cuda_arch"].value)
            settings["cmake.define.MEMKERN_CUDA_ARCHITECTURES"] = architectures
        return settings
