#include "engine/state/state_files.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "checkpoint/posix_file_system.h"
#include "checkpoint/reader.h"
#include "model/hf/safetensors.h"
#include "model/hf/safetensors_writer.h"
#include "tests/model/stacked_family.h"
#include "tests/support/temp_folder.h"

namespace zeroth::engine::model_file_writer_test {
namespace {

const std::vector<model::PlannedTensor> kParameters = {{"embedding.weight", {4, 3}},
                                                       {"head.norm.weight", {5}}};

model::ModelLayout layout_of(torch::Dtype dtype) {
  model::ModelSpec spec;
  spec.family = "llama";
  return model::plan_model(spec, dtype, kParameters);
}

struct Part {
  size_t parameter;
  int64_t begin, end;
  std::string state = "master";
};

// What a rank writes of `values`, in two portions each, the later one first.
std::vector<checkpoint::FileSegment> write(const checkpoint::Save& save,
                                           const model::ModelLayout& layout,
                                           const std::vector<torch::Tensor>& values,
                                           const std::vector<Part>& parts) {
  ModelFileWriter ranges(save, layout);
  std::vector<StateSlice> pieces;
  for (const Part& part : parts) {
    const model::PlannedTensor& parameter = kParameters[part.parameter];
    pieces.push_back({parameter.name, part.state, torch::kFloat, TensorSlice::full(parameter.shape),
                      part.begin, part.end});
  }
  ranges.begin(pieces);
  for (size_t i = 0; i < parts.size(); ++i) {
    const torch::Tensor own = values[parts[i].parameter].slice(0, parts[i].begin, parts[i].end);
    ranges.write(i, 1, own.slice(0, 1));
    ranges.write(i, 0, own.slice(0, 0, 1));
  }
  return ranges.finish();
}

void append(std::vector<checkpoint::FileSegment>& all,
            const std::vector<checkpoint::FileSegment>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

struct Fixture {
  TempFolder directory;
  checkpoint::SingleRankGroup ranks;
  checkpoint::Saver saver{
      checkpoint::PosixFileSystem::make(directory / "c"), ranks, {.run_id = "run"}};
};

}  // namespace

TEST_CASE("ranges of several ranks make up the file that one writer makes") {
  Fixture at;
  const std::vector<torch::Tensor> values = {torch::randn({12}), torch::randn({5})};
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16, torch::kFloat16}) {
    const model::ModelLayout layout = layout_of(dtype);
    checkpoint::Save save = at.saver.begin(3, layout.bytes());
    checkpoint::RankManifest all;
    all.parts = make_model_files(save, layout);
    append(all.parts, write(save, layout, values, {{1, 2, 5, "weight"}, {0, 0, 7, "exp_avg"}}));
    append(all.parts, write(save, layout, values, {{0, 0, 7}, {0, 7, 12}, {1, 0, 2, "weight"}}));
    save.commit(all, {});

    model::SafetensorsWriter alone(at.directory / "alone", dtype, layout.files[0].tensors);
    for (size_t i = 0; i < values.size(); ++i) {
      alone.write(layout.files[0].tensors[i].name, values[i].view(kParameters[i].shape));
    }
    alone.finish();
    CHECK(read_file(at.directory / "c/step-3/model.safetensors", 1 << 20) ==
          read_file(at.directory / "alone", 1 << 20));
    checkpoint::CheckpointReader reader =
        checkpoint::CheckpointReader::open(at.directory / "c/step-3");
    CHECK(reader.read_text("model.safetensors", 1 << 20).size() ==
          static_cast<size_t>(layout.bytes()));
  }
}

TEST_CASE("boxes of ranks that share a matrix make up the file of one writer") {
  Fixture at;
  const std::vector<int64_t> shape = {9, 7};
  model::ModelSpec spec;
  spec.family = "llama";
  const std::string name = "layers.0.attention.o.weight";
  const torch::Tensor matrix = torch::randn(shape);
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
    const model::ModelLayout layout = model::plan_model(spec, dtype, {{name, shape}});
    checkpoint::Save save = at.saver.begin(3, layout.bytes());
    checkpoint::RankManifest all;
    all.parts = make_model_files(save, layout);
    for (const auto& [column, columns] : {std::pair{0, 4}, {4, 3}}) {
      const torch::Tensor own = matrix.narrow(1, column, columns).reshape(-1);
      // Two shards, of which each ends within a row; written in uneven portions.
      for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 10}, {10, own.numel()}}) {
        ModelFileWriter ranges(save, layout);
        ranges.begin(
            {{name, "master", torch::kFloat, {shape, {0, column}, {9, columns}}, begin, end}});
        for (int64_t first = 0; first < end - begin; first += 6) {
          const int64_t last = std::min(begin + first + 6, end);
          ranges.write(0, first, own.slice(0, begin + first, last));
        }
        append(all.parts, ranges.finish());
      }
    }
    save.commit(all, {});

    model::SafetensorsWriter alone(at.directory / "alone", dtype, layout.files[0].tensors);
    alone.write(layout.files[0].tensors[0].name, matrix);
    alone.finish();
    CHECK(read_file(at.directory / "c/step-3/model.safetensors", 1 << 20) ==
          read_file(at.directory / "alone", 1 << 20));
  }
}

TEST_CASE("ranks that share stacked experts make up the files of one writer") {
  Fixture at;
  const std::vector<int64_t> shape = {3, 4, 5};
  const std::string name = "layers.0.mlp.experts.gate_up";
  const torch::Tensor experts = torch::randn(shape);
  for (const int64_t shard_bytes : {int64_t{1} << 30, int64_t{100}}) {
    const model::ModelLayout layout =
        model::plan_model(model::stacked_family(), torch::kFloat32, {{name, shape}}, shard_bytes);
    checkpoint::Save save = at.saver.begin(3, layout.bytes());
    checkpoint::RankManifest all;
    all.parts = make_model_files(save, layout);
    for (const int64_t row : {0, 2}) {  // a tensor-parallel rank has rows 0 and 1, or 2 and 3
      const torch::Tensor own = experts.narrow(1, row, 2).reshape(-1);
      for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 13}, {13, own.numel()}}) {
        ModelFileWriter ranges(save, layout);
        ranges.begin(
            {{name, "master", torch::kFloat, {shape, {0, row, 0}, {3, 2, 5}}, begin, end}});
        for (int64_t first = 0; first < end - begin; first += 7) {
          const int64_t last = std::min(begin + first + 7, end);
          ranges.write(0, first, own.slice(0, begin + first, last));
        }
        append(all.parts, ranges.finish());
      }
    }
    save.commit(all, {});
    const auto pieces = experts.view({6, 2, 5});
    int64_t index = 0;
    for (const auto& file : layout.files) {
      model::SafetensorsWriter alone(at.directory / "alone", torch::kFloat32, file.tensors);
      for (const auto& tensor : file.tensors) alone.write(tensor.name, pieces[index++]);
      alone.finish();
      CHECK(read_file(at.directory / "c/step-3" / file.name, 1 << 20) ==
            read_file(at.directory / "alone", 1 << 20));
    }
    CHECK(index == 6);
  }
}

TEST_CASE("a multimodal model's other tensors are copied into files of their own") {
  Fixture at;
  std::filesystem::create_directory(at.directory / "source");
  const torch::Tensor tower = torch::randn({3, 2});
  const std::vector<model::PlannedTensor> in_source = {{"vision_tower.a", {3, 2}}};
  model::SafetensorsWriter source(at.directory / "source/model.safetensors", torch::kHalf,
                                  in_source);
  source.write("vision_tower.a", tower);
  source.finish();
  model::ModelSpec spec;
  spec.family = "mistral";
  spec.multimodal = {.model_type = "mistral3",
                     .directory = at.directory / "source",
                     .others = {{"vision_tower.a", "F16", {3, 2}, 12}}};
  const model::ModelLayout layout = model::plan_model(spec, torch::kFloat, kParameters);
  const std::vector<torch::Tensor> values = {torch::randn({12}), torch::randn({5})};
  checkpoint::Save save = at.saver.begin(3, layout.bytes());
  checkpoint::RankManifest all;
  all.parts = make_model_files(save, layout);
  append(all.parts, write(save, layout, values, {{0, 0, 12}, {1, 0, 5}}));
  save.commit(all, {});
  const std::filesystem::path step = at.directory / "c/step-3";
  checkpoint::CheckpointReader reader = checkpoint::CheckpointReader::open(step);
  CHECK(reader.read_text("model-00002-of-00002.safetensors", 1 << 20) ==
        read_file(at.directory / "source/model.safetensors", 1 << 20));
  const model::SafetensorsDirectory saved(step);
  CHECK(saved.entries().size() == 3);
  CHECK(saved.entries().contains("model.language_model.embed_tokens.weight"));
}

TEST_CASE("a part that no rank wrote, or that is written twice, is refused") {
  Fixture at;
  const std::vector<torch::Tensor> values = {torch::randn({12}), torch::randn({5})};
  const model::ModelLayout layout = layout_of(torch::kFloat32);
  const auto commit = [&](const std::vector<Part>& parts) {
    checkpoint::Save save = at.saver.begin(3, layout.bytes());
    checkpoint::RankManifest all;
    all.parts = make_model_files(save, layout);
    append(all.parts, write(save, layout, values, parts));
    save.commit(all, {});
  };
  CHECK_THROWS_WITH_AS(commit({{0, 0, 7}, {1, 0, 5}}), doctest::Contains("expected offset"), Error);
  CHECK_THROWS_WITH_AS(commit({{0, 0, 7}, {0, 6, 12}, {1, 0, 5}}),
                       doctest::Contains("expected offset"), Error);
  CHECK_NOTHROW(commit({{0, 0, 7}, {0, 7, 12}, {1, 0, 5}}));
}

TEST_CASE("a value that is no use is refused with its parameter's name") {
  Fixture at;
  const auto refused = [&](torch::Dtype dtype, double value) {
    const model::ModelLayout layout = layout_of(dtype);
    const checkpoint::Save save = at.saver.begin(3, layout.bytes());
    make_model_files(save, layout);
    std::vector<torch::Tensor> values = {torch::randn({12}), torch::randn({5})};
    values[1][3] = value;
    return message_of<Error>([&] { write(save, layout, values, {{0, 0, 12}, {1, 0, 5}}); });
  };
  const std::string step = (at.directory / "c/step-3").string();
  CHECK(refused(torch::kFloat32, std::numeric_limits<double>::infinity()) ==
        step + " is not saved: parameter head.norm.weight holds inf");
  CHECK(refused(torch::kFloat16, 70000).starts_with("head.norm.weight has a value of 70000"));
  CHECK(refused(torch::kFloat32, 70000) == "no exception");
}

}  // namespace zeroth::engine::model_file_writer_test
