#%Module1.0
# Module file for Environment Modules. Copy it to a folder of MODULEPATH as convoy/VERSION; `base` is what `cmake --install build
# --prefix` got.
proc ModulesHelp {} {
  puts stderr "Convoy trains convolutional networks by MPI, one rank a GPU or a share of the CPU. See `man convoy`."
}
module-whatis "convolutional networks, trained by MPI"

set base /opt/convoy/[file tail [module-info name]]
# What it was built with, as your cluster calls it. Ranks are started by that MPI's mpirun, or `srun --mpi=pmix`.
# prereq gcc/12 openmpi/4.1 hdf5/1.14 cuda/12.4 cudnn/9 nccl/2.21

prepend-path PATH $base/bin
setenv CONVOY_HOME $base
