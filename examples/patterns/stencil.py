"""The mean of four neighbours, as a program made of patterns.

``tilewright patterns rank examples/patterns/stencil.py --sizes N=1024,M=1024`` ranks its kernels.
"""

from tilewright import patterns as tp

N, M = tp.sizes("N M")

mean = tp.fun(lambda w: (w[0, 1] + w[1, 0] + w[1, 2] + w[2, 1]) / 4, "mean")
stencil = tp.array("A", tp.f32[N, M]) >> tp.pad2(1, 1, tp.clamp) >> tp.slide2(3, 1) >> tp.map2(mean)
