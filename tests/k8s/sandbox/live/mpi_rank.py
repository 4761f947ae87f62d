"""Program of the ranks of the tests' MPI jobs."""

import os
import sys
import time
from pathlib import Path

env = os.environ
told = {
    "rank": env["OMPI_COMM_WORLD_RANK"],
    "of": env["OMPI_COMM_WORLD_SIZE"],
    "local": env["OMPI_COMM_WORLD_LOCAL_RANK"],
    "host": env["HOSTNAME"],
    "pod": env["GPUCONSOLE_POD_UID"],
    "gpus": env.get("GPUCONSOLE_SIMULATED_GPUS", ""),
    "folder": os.getcwd().replace(" ", "_"),
    "master": env["MASTER_ADDR"],
    "port": env["MASTER_PORT"],
}
print(*(f"{name}={value}" for name, value in told.items()), flush=True)
if len(sys.argv) > 1:
    begun = Path(env["BEGUN"], told["rank"])
    fresh = begun.parent.with_name(f"{begun.parent.name}-{begun.name}")
    fresh.write_text(str(os.getpid()))
    fresh.replace(begun)
    time.sleep(float(sys.argv[1]))
