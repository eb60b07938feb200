"""Clusters in one process, from one seed: time, network, disks and clocks are simulated; all above them is real.

```
 events, clock, disk, storage, network, links, machine     the virtual hardware, shared by all layers
 plan, world, layers, sweep, shrink, outcome, trace        a seed, its plan, a run, and many runs
 consensus/   Raft, log and journal alone                  nodes/   whole nodes     gossip/   membership alone
```
"""
