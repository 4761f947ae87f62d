"""Adds the ranks of an Open MPI job with MPI itself; with a number of seconds they stay."""

import ctypes
import os
import sys
import time
from ctypes import addressof, c_char, c_double, c_void_p

mpi = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
mpi.MPI_Init(None, None)
rank, total = c_double(float(os.environ["OMPI_COMM_WORLD_RANK"])), c_double()
names = ("ompi_mpi_double", "ompi_mpi_op_sum", "ompi_mpi_comm_world")
double, add, world = (c_void_p(addressof(c_char.in_dll(mpi, name))) for name in names)
mpi.MPI_Allreduce(ctypes.byref(rank), ctypes.byref(total), 1, double, add, world)
print(f"sum={total.value}", flush=True)
time.sleep(float("".join(sys.argv[2:]) or 0))
mpi.MPI_Finalize()
