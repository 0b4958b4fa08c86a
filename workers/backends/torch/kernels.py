"""Kernels on lists of tensors, one call for all weights of a model.

Their names begin with an underscore in torch; `torch.optim` is built on them, and so are we (see `optimizers`).
"""

import torch

add = torch._foreach_add  # noqa: SLF001 - see above, and so below
add_ = torch._foreach_add_
addcdiv_ = torch._foreach_addcdiv_
addcmul_ = torch._foreach_addcmul_
clamp_max = torch._foreach_clamp_max  # noqa: SLF001
clamp_min = torch._foreach_clamp_min  # noqa: SLF001
fused_adamw_ = torch._fused_adamw_
mul = torch._foreach_mul  # noqa: SLF001
mul_ = torch._foreach_mul_
norm = torch._foreach_norm  # noqa: SLF001
sign = torch._foreach_sign  # noqa: SLF001
sqrt = torch._foreach_sqrt  # noqa: SLF001
