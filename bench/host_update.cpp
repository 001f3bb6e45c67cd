// host_update [MILLIONS [ROUNDS]]: the fused AdamW step on the host (unscale, clip, update, bf16
// copy; then with moments of 8 bits; then with masters and moments in bf16, and so of some columns
// of a matrix) beside a plain loop that reads and writes the same arrays, in turns on the same
// memory, medians of ROUNDS.
// OMP_NUM_THREADS says how many threads.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/machine/parallel.h"
#include "optim/coded_states.h"
#include "optim/cpu/cpu_update.h"

namespace {

using zeroth::optim::CpuChunk;

// On a boundary of 64 bytes.
template <typename T>
class Array {
 public:
  explicit Array(int64_t count)
      : room_(static_cast<size_t>(count) + 64 / sizeof(T), T{}), begin_(room_.data()) {
    size_t space = room_.size() * sizeof(T);
    std::align(64, static_cast<size_t>(count) * sizeof(T), begin_, space);
  }
  T* data() const { return static_cast<T*>(begin_); }

 private:
  std::vector<T> room_;
  void* begin_;
};

float to_float(float wire) {
  return wire;
}
float to_float(uint16_t wire) {
  return std::bit_cast<float>(uint32_t{wire} << 16);
}

// What Adam reads and writes with as little arithmetic as that takes.
template <typename Grad>
[[gnu::always_inline]] inline void pass(const CpuChunk& chunk, int64_t begin, int64_t end) {
  float* __restrict p = static_cast<float*>(chunk.master);
  float* __restrict m = static_cast<float*>(chunk.states[0]);
  float* __restrict v = static_cast<float*>(chunk.states[1]);
  const Grad* __restrict g = static_cast<const Grad*>(chunk.grad);
  uint16_t* __restrict copy = static_cast<uint16_t*>(chunk.copy);
  for (int64_t i = begin; i < end; ++i) {
    const float wire = to_float(g[i]);
    m[i] = m[i] * 0.9F + wire;
    v[i] = v[i] * 0.99F + wire * wire;
    p[i] += m[i] - v[i];
    copy[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(p[i]) >> 16);
  }
}

[[gnu::target_clones("avx512f", "avx2", "default")]] void pass_fp32(const CpuChunk& chunk,
                                                                    int64_t begin, int64_t end) {
  pass<float>(chunk, begin, end);
}
[[gnu::target_clones("avx512f", "avx2", "default")]] void pass_bf16(const CpuChunk& chunk,
                                                                    int64_t begin, int64_t end) {
  pass<uint16_t>(chunk, begin, end);
}

// The same of masters and moments in bf16.
[[gnu::target_clones("avx512f", "avx2", "default")]] void pass_all_bf16(const CpuChunk& chunk,
                                                                        int64_t begin,
                                                                        int64_t end) {
  uint16_t* __restrict p = static_cast<uint16_t*>(chunk.master);
  uint16_t* __restrict m = static_cast<uint16_t*>(chunk.states[0]);
  uint16_t* __restrict v = static_cast<uint16_t*>(chunk.states[1]);
  const uint16_t* __restrict g = static_cast<const uint16_t*>(chunk.grad);
  const auto cut = [](float x) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16); };
  for (int64_t i = begin; i < end; ++i) {
    const float wire = to_float(g[i]);
    const float first = to_float(m[i]) * 0.9F + wire, second = to_float(v[i]) * 0.99F + wire * wire;
    m[i] = cut(first);
    v[i] = cut(second);
    p[i] = cut(to_float(p[i]) + first - second);
  }
}

// The same of moments in 8 bits, without what the codes mean.
[[gnu::target_clones("avx512f", "avx2", "default")]] void pass_codes(const CpuChunk& chunk,
                                                                     int64_t begin, int64_t end) {
  float* __restrict p = static_cast<float*>(chunk.master);
  uint8_t* __restrict m = static_cast<uint8_t*>(chunk.states[0]);
  uint8_t* __restrict v = static_cast<uint8_t*>(chunk.states[1]);
  const float* __restrict g = static_cast<const float*>(chunk.grad);
  uint16_t* __restrict copy = static_cast<uint16_t*>(chunk.copy);
  for (int64_t i = begin; i < end; ++i) {
    p[i] += g[i];
    m[i] = static_cast<uint8_t>(m[i] + 1);
    v[i] = static_cast<uint8_t>(v[i] + 1);
    copy[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(p[i]) >> 16);
  }
}

double seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct UpdateCase {
  const char* name;
  void (*pass)(const CpuChunk& chunk, int64_t begin, int64_t end);
  int64_t bytes;  // of an element
  zeroth::configs::OptimizerConfig config = {};
};

void measure(const UpdateCase& what, const CpuChunk& chunk, int rounds) {
  const zeroth::optim::CpuUpdate update(what.config);
  const zeroth::optim::UpdateStep step = {.lr = 1e-4, .weight_decay = 0.01, .grad_factor = 0.37};
  std::vector<double> pass_seconds, update_seconds;
  for (int round = -1; round < rounds; ++round) {  // the first is a warm-up
    const double passed = seconds([&] {
      zeroth::parallel_for(chunk.count, 1 << 14,
                           [&](int64_t begin, int64_t end) { what.pass(chunk, begin, end); });
    });
    const double updated = seconds([&] { update.apply(chunk, step); });
    if (round < 0) continue;
    pass_seconds.push_back(passed);
    update_seconds.push_back(updated);
  }
  const double elements = static_cast<double>(chunk.count);
  const double bytes = elements * static_cast<double>(what.bytes);
  fmt::print("{}, {} threads: pass {:.2f} GB/s, update {:.2f} GB/s, ratio {:.2f}, ", what.name,
             omp_get_max_threads(), bytes / median(pass_seconds) / 1e9,
             bytes / median(update_seconds) / 1e9, median(pass_seconds) / median(update_seconds));
  fmt::print("{:.0f} M elements/s\n", elements / median(update_seconds) / 1e6);
}

// Of AdamW8bit: a byte of each moment, and a maximum for each block of them.
void measure_codes(CpuChunk chunk, const float* grad, int rounds) {
  const Array<uint8_t> first(chunk.count), second(chunk.count);
  const int64_t blocks = zeroth::optim::kernel::code_blocks(chunk.count);
  const Array<float> first_maxima(blocks), second_maxima(blocks);
  std::fill_n(first.data(), chunk.count, uint8_t{zeroth::optim::kernel::CodeTables::kZeroCode});
  chunk.states = {first.data(), second.data()};
  chunk.maxima = {first_maxima.data(), second_maxima.data()};
  chunk.grad = grad;
  chunk.grad_format = zeroth::optim::kernel::kFp32;
  zeroth::configs::OptimizerConfig config;
  config.kind = zeroth::configs::OptimizerConfig::Kind::kAdamW8bit;
  measure({"8-bit moments", pass_codes, 18, config}, chunk, rounds);
}

void run(const std::vector<std::string>& arguments) {
  const int64_t count = (arguments.empty() ? 32 : std::stoll(arguments[0])) * 1'000'000;
  const int rounds = arguments.size() > 1 ? std::stoi(arguments[1]) : 9;
  const Array<float> master(count), first(count), second(count), wide_grad(count);
  const Array<uint16_t> grad(count), copy(count);
  for (int64_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(i % 251 - 125) / 1024;
    master.data()[i] = value;
    wide_grad.data()[i] = -value;
    grad.data()[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(-value) >> 16);
  }
  CpuChunk chunk = {.count = count,
                    .master = master.data(),
                    .states = {first.data(), second.data()},
                    .grad = wide_grad.data(),
                    .copy = copy.data()};
  measure({"fp32 gradient", pass_fp32, 30}, chunk, rounds);
  chunk.grad = grad.data();
  chunk.grad_format = zeroth::optim::kernel::kBf16;
  measure({"bf16 gradient", pass_bf16, 28}, chunk, rounds);
  measure_codes(chunk, wide_grad.data(), rounds);
  chunk.copy = nullptr;
  for (void* array : {chunk.master, chunk.states[0], chunk.states[1]}) {
    std::copy_n(grad.data(), count, static_cast<uint16_t*>(array));
  }
  std::fill_n(static_cast<uint16_t*>(chunk.states[1]), count, uint16_t{0x3c00});
  const zeroth::configs::OptimizerConfig all_bf16 = {.bf16_states = true, .bf16_masters = true};
  measure({"all in bf16", pass_all_bf16, 14, all_bf16}, chunk, rounds);
  // Half of a matrix's columns, in rows of whole vectors and in others.
  for (const auto& [name, length] : {std::pair{"rows of 2048", 2048}, {"rows of 86", 86}}) {
    const zeroth::optim::OffsetSpan columns[] = {
        {0, {.first = 0, .left = length, .length = length, .gap = length}}};
    chunk.offsets = columns;
    measure({name, pass_all_bf16, 14, all_bf16}, chunk, rounds);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "host_update: {}\n", error.what());
    return 1;
  }
}
