"""zeroth on nodes of a Ray cluster: ray_nodes.py NODES [zeroth's flags] PROGRAM ...

An actor on each node runs one zeroth, which starts that node's ranks. A node that fails ends the others.
"""
import os
import secrets
import socket
import subprocess
import sys

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote(num_cpus=1)
class Node:
    def meeting(self):
        with socket.socket() as free:
            free.bind(("", 0))
            return ray.util.get_node_ip_address(), str(free.getsockname()[1])

    def run(self, command, secret):
        # SIGTERM where Ray ends this process: zeroth then lets its ranks finish their step.
        words = ["setpriv", "--pdeathsig", "TERM", "zeroth", *command]
        environment = {**os.environ, "ZEROTH_SECRET": secret}
        environment.pop("OMP_NUM_THREADS", None)  # Ray's, of the actor's CPUs; zeroth knows those of ranks
        return subprocess.run(words, env=environment).returncode


def main():
    num_nodes, command = int(sys.argv[1]), sys.argv[2:]
    gpus = os.environ.get("GPUS_PER_NODE")  # that Ray sets aside for the ranks of a node
    ray.init()
    group = placement_group([{"CPU": 1, **({"GPU": int(gpus)} if gpus else {})}] * num_nodes, "STRICT_SPREAD")
    if not group.wait(300):
        sys.exit(f"there are no {num_nodes} nodes with room")
    nodes = [
        Node.options(
            num_gpus=int(gpus or 0),
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index),
        ).remote()
        for index in range(num_nodes)
    ]
    address, port = ray.get(nodes[0].meeting.remote())
    secret = secrets.token_hex(32)
    flags = ["--no_ssh", "--num_nodes", str(num_nodes), "--master_addr", address, "--master_port", port]
    runs = [node.run.remote([*flags, "--node_rank", str(index), *command], secret) for index, node in enumerate(nodes)]
    while runs:
        ended, runs = ray.wait(runs)
        if status := ray.get(ended[0]):
            sys.exit(status)


if __name__ == "__main__":
    main()
