// The adapters of a run (section lora, --use_peft, --adapter): their plan, the blocks that have
// them, and their first values.
#pragma once

#include <memory>
#include <string>

#include "model/block.h"
#include "model/hf/lora_plan.h"
#include "model/spec.h"
#include "model/tensor_parallel.h"
#include "model/weight_source.h"

namespace zeroth::trainer {

struct Flags;
struct ResolvedRun;
struct RunPlan;

// Sets run.spec.quantization if the configuration keeps weights in NF4, and that of the
// configuration if the model's files do. Throws an Error if both differ, the model cannot be
// quantized, or the run would train quantized weights.
void resolve_quantization(ResolvedRun& run);

// Sets run.adapter if the run has adapters; with --adapter, run.config.lora is that of the
// adapter's files. Throws an Error if these differ from what the configuration says, or fit no
// module of the model.
void resolve_adapter(ResolvedRun& run);

// Returns the blocks of the run, on the meta device, for a model of this spec: the run's own, or
// one with fewer layers or tokens.
model::Blocks build_blocks(const ResolvedRun& run, const model::ModelSpec& spec,
                           const model::TensorParallelPtr& tp);

// Returns the blocks of a model with these adapters, likewise. Throws the Errors of
// model::lora_spec().
model::Blocks build_blocks(const model::ModelSpec& spec, const model::LoraPlan& plan,
                           const model::TensorParallelPtr& tp);

// Returns the values with which the blocks start; null if they are all in the checkpoint from which
// the run resumes.
std::shared_ptr<model::WeightSource> open_weights(const RunPlan& plan);

// `zeroth merge`: writes the model --model with the adapter --adapter merged into it as --output,
// in the precision of --save-dtype or of its config.json: W + scale * B A, computed in fp32 and
// rounded once. W is dequantized from NF4 if the adapter was trained over such weights, or if
// --model holds them: the model computes what was trained. Holds one tensor at a time. Returns
// lines for the user. Throws an Error if the adapter does not fit the model, or a merged value is
// not finite.
std::string merge_adapter(const Flags& flags);

}  // namespace zeroth::trainer
