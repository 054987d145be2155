[
[('forward', 690), ('forward', 690), ('backward', 780), ('backward', 780)],
[('forward', 720), ('backward', 735), ('forward', 720), ('backward', 735)],
]
# Iteration 0 cost change: 0.014246257083087244
# Iteration 0 total cost: 1343.3957342112305
# Iteration 0 total cost with P2P: 3304.5157342112307
