"""A model that transformers has loaded in NF4, with products of the weights that its codes and scales stand for.

bitsandbytes 0.50.2 quantizes the flattened weight. On the CPU it dequantizes rows whose length is no multiple of 64 with
the scales of other blocks; as one long row they are right, and so on GPUs. Its products on the CPU have the same fault.
"""

import bitsandbytes
import torch
from bitsandbytes.functional import dequantize_4bit


def weight_of(product):
    """The dequantized weight [out, in], in fp32."""
    state = product.weight.quant_state
    shape, state.shape = state.shape, torch.Size((1, state.shape.numel()))
    weight = dequantize_4bit(product.weight.data, state).float().view(shape)
    state.shape = shape
    return weight


def dequantized(model):
    """Replaces the products in NF4, in place; their weights are frozen."""
    for parent in list(model.modules()):
        for name, product in list(parent.named_children()):
            if isinstance(product, bitsandbytes.nn.Linear4bit):
                plain = torch.nn.Linear(product.in_features, product.out_features, bias=product.bias is not None)
                plain.weight = torch.nn.Parameter(weight_of(product), requires_grad=False)
                if product.bias is not None:
                    plain.bias = product.bias
                setattr(parent, name, plain)
    model.is_quantized = False
    return model
