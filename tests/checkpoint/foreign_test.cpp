#include "checkpoint/foreign.h"

#include <doctest/doctest.h>

#include "tests/checkpoint/faulty_file_system.h"

namespace zeroth::checkpoint::foreign_test {
namespace {

std::string program_of(const std::vector<std::string>& names) {
  FaultyFileSystem file_system;
  file_system.create_directory("c");
  for (const std::string& name : names) {
    if (name.ends_with('/')) {
      file_system.create_directory("c/" + name.substr(0, name.size() - 1));
    } else {
      write_text(file_system, "c/" + name, "");
    }
  }
  const auto found = find_foreign(file_system, "c");
  return found ? found->program : "none";
}

}  // namespace

TEST_CASE("trainers_own_checkpoint: a folder of another program is known by what is in it") {
  CHECK(program_of({"global_step5/", "latest"}) == "DeepSpeed");
  CHECK(program_of({"bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"}) == "DeepSpeed");
  CHECK(program_of({"global_step5/", "trainer_state.json", "config.json"}) ==
        "Hugging Face's Trainer with DeepSpeed");
  CHECK(program_of({"optimizer.pt", "config.json"}) == "Hugging Face's Trainer");
  CHECK(program_of({"rng_state_3.pth"}) == "Hugging Face's Trainer");
  CHECK(program_of({".metadata", "__0_0.distcp"}).starts_with("PyTorch"));
  CHECK(program_of({"iter_0000100/", "latest_checkpointed_iteration.txt"}) == "Megatron-LM");
  CHECK(program_of({"random_states_0.pkl"}) == "Accelerate");
  CHECK(program_of({"zero_to_fp32.py", "latest", "epoch1/"}) == "DeepSpeed");
  CHECK(program_of({"epoch=0-step=100.ckpt"}) == "PyTorch Lightning");
  for (const char* const own :
       {"changed.ckpt", "zero_to_fp32.py", "global_step5", "global_steps/", "iter_x/",
        "config.json", "model.safetensors", "trainer_state.json", "latest"}) {
    CHECK(program_of({own}) == "none");
  }
  CHECK(program_of({"zeroth/", "optimizer.pt"}) == "none");
}

TEST_CASE("trainers_own_checkpoint: what to do with it depends on the model in it") {
  CHECK(
      describe({"DeepSpeed", "global_step5", true}, "out/checkpoint-5") ==
      "out/checkpoint-5 is a checkpoint of DeepSpeed (it contains global_step5), whose states are "
      "not supported: a run cannot resume from it. --model out/checkpoint-5 starts from its "
      "weights");
  CHECK(describe({"DeepSpeed", "global_step5", false}, "out")
            .ends_with(
                "Convert its weights to a folder with config.json and safetensors (DeepSpeed's "
                "own zero_to_fp32.py, with --safe_serialization), and start from it with "
                "--model"));
}

}  // namespace zeroth::checkpoint::foreign_test
