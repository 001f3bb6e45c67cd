// The part of a Config that divides the blocks among the stages of a pipeline.
#pragma once

#include <cstdint>
#include <string>

namespace zeroth::configs {

// Pipeline: the ranks that hold the blocks, and the order in which a step's micro-batches pass
// them.
struct PipelineConfig {
  enum class Schedule {
    k1F1B,             // a stage alternates between forward and backward once the pipeline is full
    kGPipe,            // all forward passes, then all backward passes
    kInterleaved1F1B,  // 1F1B over several chunks of blocks per stage
    kZbH1,             // zero bubble: gradients of weights fill the gaps of 1F1B
    kZbV,              // the same over two chunks per stage, there and back
    kBreadthFirst      // all micro-batches through a chunk before the next chunk
  };
  // Stages, each on ranks of its own, that divide the blocks among them. 1: every rank holds all.
  int64_t stages = 1;
  Schedule schedule = Schedule::k1F1B;
  // Chunks of neighboring blocks per stage. 0: as many as the schedule needs.
  int64_t virtual_stages = 0;
  // How blocks are divided: "parameters", "uniform", "time" or its other name "best", or "type:"
  // and a regular expression.
  std::string partition = "best";

  bool is_on() const { return stages > 1; }
  bool is_breadth_first() const { return schedule == Schedule::kBreadthFirst; }
};

}  // namespace zeroth::configs
