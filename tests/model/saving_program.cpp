// Saves a model over itself, with a value more in every tensor each time, until it is killed: the
// test of what a kill leaves. `saving_program SOURCE OUTPUT`; writes a byte after each model.
#include <unistd.h>

#include "model/blocks/build_blocks.h"
#include "model/hf/model_writer.h"

namespace {

using namespace zeroth::model;

void save(const WriterOptions& options, const std::vector<PlannedTensor>& parameters,
          double value) {
  ModelWriter writer(options, parameters);
  for (const auto& parameter : parameters) {
    writer.write(parameter.name, torch::full(parameter.shape, value));
  }
  writer.commit();
}

}  // namespace

int main(int, char** argv) {
  const WriterOptions options{.source = argv[1],
                              .output = argv[2],
                              .spec = read_model_spec(argv[1]),
                              .max_shard_bytes = 20'000,
                              .overwrite = true};
  std::vector<PlannedTensor> parameters;
  for (const auto& block : build_blocks(options.spec)) {
    for (const auto& item : block->named_parameters()) {
      parameters.push_back({block->label() + "." + item.key(), item.value().sizes().vec()});
    }
  }
  for (double value = 1;; ++value) {
    save(options, parameters, value);
    if (::write(STDOUT_FILENO, "+", 1) != 1) return 1;
  }
}
