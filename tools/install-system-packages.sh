#!/bin/sh
# Installs the packages that the system lacks for building memkern and measuring; with --test also
# those for the tests, with --all also those for the tests of every entry, with --dev also those for
# linters and sanitizers, with --cluster also those for the tests that start Slurm.
# If nothing is missing, it does nothing and needs neither root nor a network.
set -eu

case "${1:-}" in
  "" | --test | --all | --dev | --cluster) level=${1:-} ;;
  *)
    echo "usage: $0 [--test | --all | --dev | --cluster]" >&2
    exit 2
    ;;
esac

missing=
packages=
# want WHAT PACKAGE CHECK...: if CHECK fails, WHAT is missing and PACKAGE contains it.
want() {
  what=$1
  package=$2
  shift 2
  if ! "$@" >/dev/null 2>&1; then
    missing="${missing:+$missing, }$what"
    packages="$packages $package"
  fi
}

header() { echo "#include <$1>" | g++ -std=c++20 -E -x c++ - -o /dev/null; }
mpich_headers() { echo '#include <mpi.h>' | mpicxx.mpich -E -x c++ - -o /dev/null; }
links() { echo 'int main() {}' | clang++ -x c++ - "$@" -o /dev/null; }
venv() { python3 -c 'import ensurepip, venv'; }
python_headers() {
  python3 -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")'
}

check() {
  missing=
  packages=
  want "a C++ compiler" g++ command -v g++
  want CMake cmake command -v cmake
  want Ninja ninja-build command -v ninja
  want git git command -v git
  want Python python3 command -v python3
  want "Python's venv" python3-venv venv
  want "Python's headers" python3-dev python_headers
  want Highway libhwy-dev header hwy/highway.h
  want hwloc libhwloc-dev header hwloc.h
  if [ -n "$level" ]; then
    want GoogleTest libgtest-dev header gtest/gtest.h
    want "Open MPI" openmpi-bin command -v mpirun.openmpi
    want "Open MPI's compilers" libopenmpi-dev command -v oshc++
    want MPICH mpich command -v mpirun.mpich
    want gfortran gfortran command -v gfortran
    want libpfm4 libpfm4 python3 -c 'import ctypes; ctypes.CDLL("libpfm.so.4")'
    want "MPICH's headers" libmpich-dev mpich_headers
    want "Google Benchmark's compare.py" libbenchmark-tools test -f /usr/share/benchmark/compare.py
    want "a browser" chromium command -v chromium # 80 MB
  fi
  if [ "$level" = --all ]; then
    want "HIP's compiler" hipcc command -v hipcc # 350 MB
    want "a compiler for AArch64" g++-aarch64-linux-gnu command -v aarch64-linux-gnu-g++ # 50 MB
    want "an emulator of AArch64" qemu-user command -v qemu-aarch64 # 90 MB
    for library in hwloc hwy gtest; do
      want "lib$library for AArch64" "lib$library-dev:arm64" dpkg -s "lib$library-dev:arm64"
    done
  fi
  if [ "$level" = --cluster ]; then
    want Slurm slurm-wlm test -x /usr/sbin/slurmctld
    want munge munge test -x /usr/sbin/munged
    want "ip" iproute2 test -e /sbin/ip
  fi
  if [ "$level" = --dev ]; then
    want clang clang command -v clang++
    want "clang's OpenMP" libomp-dev links -fopenmp
    want "clang's sanitizers" libclang-rt-dev links -fsanitize=address
    want ccache ccache command -v ccache
  fi
}

check
if [ -n "$missing" ]; then
  if ! command -v apt-get >/dev/null; then
    echo "memkern's build lacks $missing: install them with this system's package manager" >&2
    exit 1
  fi
  root=
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "memkern's build lacks $missing: as root, apt-get install$packages" >&2
      exit 1
    fi
    root=sudo
  fi
  echo "installing$packages"
  case "$packages" in *:arm64*) $root dpkg --add-architecture arm64 ;; esac
  $root apt-get -q update
  # shellcheck disable=SC2086 # a list of words
  $root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 install \
    --no-install-recommends $packages >/dev/null
  check
  if [ -n "$missing" ]; then
    echo "memkern's build still lacks $missing: their packages were installed but do not provide it" >&2
    exit 1
  fi
fi

if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
  echo "memkern needs Python 3.10 or later, and python3 here is $(python3 -V | cut -d' ' -f2)" >&2
  exit 1
fi
