#include "launcher/cluster/node_job.h"

#include <doctest/doctest.h>

#include <fstream>

#include "tests/support/temp_folder.h"

namespace zeroth::launcher::model_digest_test {

TEST_CASE("the model's folder is found in the arguments in all spellings, the last one") {
  CHECK(model_argument({"finetune", "--model", "a", "--data", "d"}) == "a");
  CHECK(model_argument({"finetune", "--model=a"}) == "a");
  CHECK(model_argument({"finetune", "--model_name_or_path", "b"}) == "b");
  CHECK(model_argument({"finetune", "--model_name_or_path=b", "--model=c"}) == "c");
  CHECK(model_argument({"finetune", "--models", "a", "--model-x=b", "--model"}) == "");
  CHECK(model_argument({"--model", "a"}) == "");
  CHECK(model_argument({}) == "");
}

TEST_CASE("models differ by what config.json and the indices say, and by nothing else") {
  const TempFolder one, two;
  const auto write = [](const TempFolder& directory, const char* name, const char* text) {
    std::ofstream(directory.path() / name) << text;
  };
  const auto digest = [](const TempFolder& directory) {
    return model_digest(directory.path().string());
  };
  for (const TempFolder* directory : {&one, &two}) write(*directory, "config.json", "{}");
  CHECK(digest(one) == digest(two));
  write(one, "model.safetensors", "weights");
  CHECK(digest(one) == digest(two));
  write(one, "model.safetensors.index.json", "{}");
  CHECK(digest(one) != digest(two));
  write(two, "model.safetensors.index.json", "{}");
  CHECK(digest(one) == digest(two));
  write(two, "config.json", "{ }");
  CHECK(digest(one) != digest(two));
}

TEST_CASE("what is no folder has no digest") {
  CHECK(model_digest("") == "");
  CHECK(model_digest("meta-llama/Llama-3.2-1B") == "");
  CHECK(model_digest("/dev/null") == "");
}

}  // namespace zeroth::launcher::model_digest_test
