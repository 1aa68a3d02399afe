"""Coefficients that predict before anything was measured here, by executor.

``kernelassay cost SESSION --fit-on SESSION --json`` prints such a table.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelassay.cost import Coefficients, Machine

_CPU: Mapping[str, Coefficients] = {
    "*": Coefficients(0.00025, 37900000.0, 92200000.0),
    "prepare": Coefficients(0.0167, 11000000.0, 2670000.0),
    "original": Coefficients(0.00132, 8780000.0, 9040000.0),
    "candidate": Coefficients(0.000625, 452000000.0, 425000000.0),
    "*/optimised": Coefficients(0.00025, 37900000.0, 92200000.0),
    "argmax/optimised": Coefficients(0.0086, 1100000.0, 2680000.0),
    "batch_norm/optimised": Coefficients(0.00447, 2120000.0, 5160000.0),
    "batched_matmul/optimised": Coefficients(0.0022, 4300000.0, 10500000.0),
    "candidate:argmax/optimised": Coefficients(0.00298, 94700000.0, 89100000.0),
    "candidate:batch_norm/optimised": Coefficients(0.00816, 34600000.0, 32600000.0),
    "candidate:batched_matmul/optimised": Coefficients(0.0179, 15800000.0, 14800000.0),
    "candidate:conv2d/optimised": Coefficients(0.0473, 5960000.0, 5620000.0),
    "candidate:conv3d/optimised": Coefficients(0.0329, 8570000.0, 8070000.0),
    "candidate:conv_transpose2d/optimised": Coefficients(0.0277, 10200000.0, 9600000.0),
    "candidate:cross_entropy/optimised": Coefficients(0.00241, 117000000.0, 110000000.0),
    "candidate:cumsum/optimised": Coefficients(0.00209, 135000000.0, 127000000.0),
    "candidate:group_norm/optimised": Coefficients(0.0154, 18300000.0, 17200000.0),
    "candidate:layer_norm/optimised": Coefficients(0.00821, 34400000.0, 32400000.0),
    "candidate:matmul/optimised": Coefficients(0.0, 38800000.0, 11900000.0),
    "candidate:max_pool2d/optimised": Coefficients(0.00198, 142000000.0, 134000000.0),
    "candidate:pointwise/optimised": Coefficients(0.000668, 1660000000.0, 26500000000.0),
    "candidate:softmax/optimised": Coefficients(0.0214, 13200000.0, 12400000.0),
    "candidate:sum/optimised": Coefficients(0.00216, 131000000.0, 123000000.0),
    "conv2d/optimised": Coefficients(0.00168, 5650000.0, 13700000.0),
    "conv3d/optimised": Coefficients(0.00124, 7620000.0, 18500000.0),
    "conv_transpose2d/optimised": Coefficients(0.00148, 6400000.0, 15600000.0),
    "cross_entropy/optimised": Coefficients(0.00108, 8790000.0, 21300000.0),
    "cumsum/optimised": Coefficients(0.00633, 1500000.0, 3640000.0),
    "group_norm/optimised": Coefficients(0.0465, 204000.0, 496000.0),
    "layer_norm/optimised": Coefficients(0.00457, 2070000.0, 5050000.0),
    "matmul/optimised": Coefficients(0.000377, 25100000.0, 61200000.0),
    "max_pool2d/optimised": Coefficients(0.000294, 32200000.0, 78200000.0),
    "pointwise/optimised": Coefficients(0.000247, 38400000.0, 93500000.0),
    "softmax/optimised": Coefficients(0.0155, 611000.0, 1480000.0),
    "sum/optimised": Coefficients(0.000375, 25300000.0, 61400000.0),
}

_CUDA: Mapping[str, Coefficients] = {
    "*": Coefficients(0.00275, 2580000000000.0, 1740000000000.0),
    "*/optimised": Coefficients(0.00275, 2580000000000.0, 1740000000000.0),
    "avg_pool2d/optimised": Coefficients(0.00452, 324000000000.0, 1300000000000.0),
    "avg_pool3d/optimised": Coefficients(0.0045, 222000000000.0, 288000000000.0),
    "batched_matmul/optimised": Coefficients(0.000139, 2580000000000.0, 26900000000.0),
    "candidate": Coefficients(0.0111, 2540000000000.0, 995000000000.0),
    "candidate:avg_pool2d/optimised": Coefficients(0.0153, 576000000000.0, 2350000000000.0),
    "candidate:avg_pool3d/optimised": Coefficients(0.013, 247000000000.0, 467000000000.0),
    "candidate:batched_matmul/optimised": Coefficients(0.0132, 2690000000000.0, 99500000000.0),
    "candidate:conv1d/optimised": Coefficients(0.0153, 1890000000000.0, 284000000000.0),
    "candidate:conv2d/optimised": Coefficients(0.0122, 1780000000000.0, 360000000000.0),
    "candidate:conv_transpose1d/optimised": Coefficients(0.0116, 1410000000000.0, 81500000000.0),
    "candidate:conv_transpose2d/optimised": Coefficients(0.014, 888000000000.0, 29600000000.0),
    "candidate:conv_transpose3d/optimised": Coefficients(0.00984, 673000000000.0, 6730000000.0),
    "candidate:matmul/optimised": Coefficients(0.0124, 4180000000000.0, 500000000000.0),
    "candidate:matvec/optimised": Coefficients(0.000742, 767000000000.0, 1580000000000.0),
    "conv1d/optimised": Coefficients(0.0058, 2550000000000.0, 50800000000.0),
    "conv2d/optimised": Coefficients(0.00301, 1910000000000.0, 134000000000.0),
    "conv_transpose1d/optimised": Coefficients(0.000397, 1490000000000.0, 18500000000.0),
    "conv_transpose2d/optimised": Coefficients(0.00331, 902000000000.0, 9610000000.0),
    "conv_transpose3d/optimised": Coefficients(0.00259, 825000000000.0, 2690000000.0),
    "matmul/optimised": Coefficients(0.00455, 3610000000000.0, 9550000000000.0),
    "matvec/optimised": Coefficients(0.000256, 1240000000000.0, 2510000000000.0),
    "original": Coefficients(0.0442, 1770000000000.0, 1300000000000.0),
    "prepare": Coefficients(0.0461, 1380000000000.0, 47200000000.0),
}

_LISTED = (
    Machine(
        "cpu",
        "440 units of 17 suite problems in the optimised style, on two busy cores of an AMD EPYC"
        " (torch 2.13, g++ 12.2)",
        _CPU,
    ),
    Machine(
        "cuda",
        "850 units of 34 problems of KernelBench level 1, of official and of small sizes, as one of"
        " 12 lanes that shared an H200 (torch 2.11)",
        _CUDA,
    ),
)

MACHINES: Mapping[str, Machine] = {machine.executor: machine for machine in _LISTED}
