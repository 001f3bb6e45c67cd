#include "model/hf/safetensors_writer.h"

#include <doctest/doctest.h>

#include <cmath>

#include "base/error.h"
#include "tests/model/materialize.h"
#include "tests/support/temp_folder.h"

namespace zeroth::model::safetensors_writer_test {

TEST_CASE("what the writer writes is what the reader reads, in any order of writing") {
  const TempFolder directory;
  const auto path = directory.path() / "x.safetensors";
  const torch::Tensor a = torch::randn({2, 3}), b = torch::randn({4}), c = torch::randn({1, 0});
  SafetensorsWriter writer(path, torch::kFloat32, {{"a", {2, 3}}, {"b", {4}}, {"c", {1, 0}}});
  writer.write("b", b.to(torch::kFloat64));
  writer.write("a", a.t().contiguous().t());
  writer.write("c", c);
  writer.finish();
  auto read = load_tensors(path.string());
  CHECK(torch::equal(read["a"], a));
  CHECK(torch::equal(read["b"], b));
  CHECK(read["c"].sizes().vec() == Sizes{1, 0});
}

TEST_CASE("a writer takes what is planned, and counts it") {
  const TempFolder directory;
  SafetensorsWriter writer(directory.path() / "x", torch::kBFloat16, {{"a", {2}}});
  CHECK_THROWS_AS(writer.write("a", torch::zeros({3})), InternalError);
  CHECK_THROWS_AS(writer.write("b", torch::zeros({2})), InternalError);
  CHECK(writer.finish() == 0);
}

TEST_CASE("two writers write one file") {
  const TempFolder directory;
  const auto path = directory.path() / "x.safetensors";
  const std::vector<PlannedTensor> plan = {{"a", {2, 3}}, {"b", {4}}};
  const std::string missing = message_of<Error>(
      [&] { SafetensorsWriter(path, torch::kFloat32, plan, SafetensorsWriter::Access::kOpen); });
  CHECK(missing.starts_with(path.string() + " cannot be opened: No such file or directory"));
  write_text(path, "short");
  CHECK(message_of<Error>([&] {
          SafetensorsWriter(path, torch::kFloat32, plan, SafetensorsWriter::Access::kOpen);
        }).find("is not the file of ") != std::string::npos);
  SafetensorsWriter first(path, torch::kFloat32, plan);
  SafetensorsWriter second(path, torch::kFloat32, plan, SafetensorsWriter::Access::kOpen);
  const torch::Tensor a = torch::randn({2, 3}), b = torch::randn({4});
  second.write("a", a);
  first.write("b", b);
  CHECK(second.finish() == 1);
  CHECK(first.finish() == 1);
  auto read = load_tensors(path.string());
  CHECK(torch::equal(read["a"], a));
  CHECK(torch::equal(read["b"], b));
}

TEST_CASE("a file that cannot be created is named with the reason") {
  const std::string said = message_of<Error>(
      [] { SafetensorsWriter writer("/nowhere/x.safetensors", torch::kFloat32, {}); });
  CHECK(said == "/nowhere/x.safetensors cannot be created: No such file or directory");
}

TEST_CASE("a full disk is an error") {
  if (!std::filesystem::exists("/dev/full")) return;
  const std::string said = message_of<Error>([] {
    SafetensorsWriter writer("/dev/full", torch::kFloat32, {{"a", {2}}});
  });
  CHECK(said.starts_with("/dev/full: writing "));
  CHECK(said.find(" bytes at offset 0 failed: No space left on device") != said.npos);
}

TEST_CASE("a value that fp16 cannot hold is an error with the tensor's name") {
  const TempFolder directory;
  SafetensorsWriter writer(directory.path() / "x", torch::kFloat16, {{"a", {2}}, {"b", {2}}});
  CHECK_NOTHROW(writer.write("b", torch::tensor({65504.0, -HUGE_VAL})));
  CHECK(message_of<Error>([&] {
          writer.write("a", torch::tensor({1.0, -70000.0}));
        }) == "a has a value of 70000, beyond the 65504 that fp16 holds: save in bf16 or fp32");
}

}  // namespace zeroth::model::safetensors_writer_test
