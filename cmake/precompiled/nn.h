// Precompiled for sources that see torch::nn, and with it all operators.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include "cmake/precompiled/tensor.h"
