# Spack's recipe for Convoy (Spack 1.0 or later). `spack repo add jobs/packages/spack/spack_repo/convoy`, then, from a clone:
#   spack install --add convoy@main +cuda cuda_arch=90     # after `spack develop --path . convoy@main` in an environment
# or set `git` to where your clone comes from.
from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Convoy(CMakePackage, CudaPackage):
    """Trains convolutional networks by MPI, one rank a GPU or a share of the CPU."""

    homepage = "https://example.org/convoy"
    git = "https://example.org/convoy.git"

    license("BSD-3-Clause")

    version("main", branch="main")

    variant("cpu", default=True, description="CPU backend (oneDNN)")
    variant("images", default=True, description="Import of JPEG and PNG files and of archives")
    conflicts("~cpu~cuda", msg="at least one backend")

    depends_on("c", type="build")
    depends_on("cxx", type="build", when="+cuda")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")

    depends_on("mpi@3:")
    depends_on("hdf5")
    depends_on("libinih")
    depends_on("cjson")
    depends_on("random123")
    depends_on("xxhash")
    depends_on("onednn@2.6:", when="+cpu")
    depends_on("libarchive", when="+images")
    depends_on("libjpeg-turbo", when="+images")
    depends_on("libpng", when="+images")
    with when("+cuda"):
        depends_on("cuda@12:")
        depends_on("cudnn@9:")
        depends_on("nccl")

    generator("ninja")

    def cmake_args(self):
        args = [
            self.define("BUILD_TESTING", False),
            self.define("WITH_CPU", "ON" if self.spec.satisfies("+cpu") else "OFF"),
            self.define("WITH_CUDA", "ON" if self.spec.satisfies("+cuda") else "OFF"),
        ]
        architectures = self.spec.variants["cuda_arch"].value if self.spec.satisfies("+cuda") else ("none",)
        if "none" not in architectures:
            args.append(self.define("CMAKE_CUDA_ARCHITECTURES", ";".join(architectures)))
        if self.spec.satisfies("~images"):
            for library in ("LibArchive", "JPEG", "PNG"):
                args.append(self.define(f"CMAKE_DISABLE_FIND_PACKAGE_{library}", True))
        return args

    def test_version(self):
        """The program starts and names its version and backends."""
        text = Executable(self.prefix.bin.convoy)("--version", output=str)
        assert "backends:" in text
