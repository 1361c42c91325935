-- Module file for Lmod. Copy it to a folder of MODULEPATH as convoy/VERSION.lua; `base` is what `cmake --install build --prefix` got.
help([[Convoy trains convolutional networks by MPI, one rank a GPU or a share of the CPU. See `man convoy`.]])
whatis("Name: convoy")
whatis("Description: convolutional networks, trained by MPI")

local base = pathJoin("/opt/convoy", myModuleVersion())
-- What it was built with, as your cluster calls it. Ranks are started by that MPI's mpirun, or `srun --mpi=pmix`.
-- depends_on("gcc/12", "openmpi/4.1", "hdf5/1.14", "cuda/12.4", "cudnn/9", "nccl/2.21")

prepend_path("PATH", pathJoin(base, "bin"))
setenv("CONVOY_HOME", base)
