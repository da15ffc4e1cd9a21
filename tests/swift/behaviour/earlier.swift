// A handler for Ctrl-C that was set before ML Compute was first used.
import MLCompute

signal(SIGINT) { _ in _exit(34) }
_ = MLCTensor(shape: [2])
print("ready")
while true { usleep(100_000) }
