// Receiver of a model's parameters when the model is saved.
#pragma once

#include <string>
#include <vector>

#include "device/tensor.h"
#include "model/hf/model_layout.h"

namespace zeroth::engine {

// Each rank has a sink. Rank 0's receives the model; in a pipeline the first rank of each later
// stage passes its own parameters to its own sink, if that can join rank 0's.
class ModelSink {
 public:
  virtual ~ModelSink() = default;
  // Announces all parameters of the model, in order, and its dtype, which is that of those that are
  // not kept in fp32. Called on rank 0.
  virtual void begin(const std::vector<model::PlannedTensor>& parameters, torch::Dtype dtype) = 0;
  // Returns, on rank 0 after begin(), where it writes; empty: no sink can join.
  virtual std::string directory() const { return ""; }
  // Announces the same on the first rank of a later pipeline stage. Returns whether this sink
  // takes the parameters that are there; otherwise rank 0's receives them.
  virtual bool join(const std::string& /*directory*/, const std::vector<model::PlannedTensor>&,
                    torch::Dtype /*dtype*/) {
    return false;
  }
  // Receives a value of the announced shape and model::saved_dtype(), in the announced order, valid
  // during the call only; it may be on a GPU.
  virtual void write(const std::string& name, const torch::Tensor& value) = 0;
};

}  // namespace zeroth::engine
