// A program and a libzeroth_gpu.so of different builds.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>

#include "device/gpu.h"
#include "tests/trainer/workbench.h"

namespace zeroth::simulated::stamp_test {
namespace {

namespace fs = std::filesystem;
using trainer::Workbench;

// A copy of the program in bench/bin trains there, on the GPU of the library that it finds.
Workbench::Result run_copy(const Workbench& bench, const std::string& environment = "") {
  fs::create_directories(bench / "bin");
  fs::copy_file(ZEROTH_SIMULATED_DIR "/finetune", bench / "bin/finetune",
                fs::copy_options::overwrite_existing);
  return bench.shell(environment +
                     " DS_ACCELERATOR=cuda bin/finetune --model model --data train.bin "
                     "--seq-len 16 --micro-batch 2 --steps 1");
}

// With its library beside it, in which `old` is made `changed`, which is as long.
Workbench::Result run_with(const Workbench& bench, const std::string& old,
                           const std::string& changed) {
  std::string library = read_text(ZEROTH_SIMULATED_DIR "/libzeroth_gpu.so");
  REQUIRE(old.size() == changed.size());
  REQUIRE(library.find(old) != std::string::npos);
  for (size_t at = 0; (at = library.find(old, at)) != std::string::npos; at += old.size()) {
    library.replace(at, old.size(), changed);
  }
  fs::create_directories(bench / "bin");
  bench.write("bin/libzeroth_gpu.so", library);
  return run_copy(bench);
}

}  // namespace

TEST_CASE("a GPU library of another build is refused before it is used, with both stamps") {
  const Workbench bench;
  const std::string stamp = device::kGpuStamp;
  CHECK(run_with(bench, stamp, stamp).code == 0);
  std::string other = stamp;
  other.back() = other.back() == '0' ? '1' : '0';
  const auto result = run_with(bench, stamp, other);
  CHECK(result.code == 1);
  CHECK_MESSAGE(
      trainer::has(result.err, fmt::format("bin/libzeroth_gpu.so is from another build than this "
                                           "program: its stamp is \"{}\", the program's \"{}\"; "
                                           "build",
                                           other, stamp)),
      result.err);
  const auto unstamped = run_with(bench, "zeroth_gpu_stamp", "zeroth_gpu_STAMP");
  CHECK(unstamped.code == 1);
  CHECK(trainer::has(unstamped.err, "its stamp is missing, the program's \"" + stamp + "\""));
}

TEST_CASE("no variable and no current folder decides which GPU library a program loads") {
  const Workbench bench;
  fs::copy_file(ZEROTH_SIMULATED_DIR "/libzeroth_gpu.so", bench / "libzeroth_gpu.so");
  const auto result = run_copy(bench, "LD_LIBRARY_PATH=:" ZEROTH_SIMULATED_DIR);
  CHECK(result.code == 1);
  CHECK_MESSAGE(trainer::has(result.err, "no GPU support in this build"), result.err);
}

}  // namespace zeroth::simulated::stamp_test
