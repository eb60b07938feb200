"""A cluster in one process, from one seed: time, network, disks and clocks are simulated, Raft and log are real."""
