#include "model/kernels/matrix_product.h"

#include <ATen/Parallel.h>
#include <ATen/native/CPUBlas.h>
#include <c10/core/impl/alloc_cpu.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>

#include "base/error.h"
#include "base/machine/parallel.h"
#include "model/kernels/cpu/select.h"

namespace zeroth::model {
namespace {

using cpu::MatrixView;
using torch::Tensor;

// Tiles of one call of oneDNN's kernel: [kTileSide, kTileDepth] times [kTileDepth, kTileSide], both
// within the L2 cache. Rows and depth are padded with zeros to kPadMultiple, so that the number of
// different calls, for each of which oneDNN compiles a kernel, stays small.
constexpr int64_t kTileSide = 64, kTileDepth = 512, kPadMultiple = 16;
// Max and min side of a block of the result, which one thread computes. Blocks shrink down to
// kMinBlockSide if threads would be left without work.
constexpr int64_t kMaxBlockSide = 512, kMinBlockSide = 128;
constexpr int64_t kBlocksPerThread = 2;

constexpr int64_t ceil_div(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}
constexpr int64_t round_up(int64_t count, int64_t size) {
  return ceil_div(count, size) * size;
}

struct IndexRange {
  int64_t begin, count;
};

// A DirectView accesses fp32 elements in place, row by row.
struct DirectView {
  float* data = nullptr;  // null if they have another dtype, or are transposed
  int64_t stride = 0;

  float* at(int64_t row, int64_t column) const { return data + row * stride + column; }
};

// A FactorMatrix is a factor from which fp32 tiles are copied.
class FactorMatrix {
 public:
  explicit FactorMatrix(const Tensor& matrix) {
    const bool transposed = matrix.stride(1) != 1 && matrix.stride(0) == 1;
    dense_ = transposed || matrix.stride(1) == 1 ? matrix : matrix.contiguous();
    cpu::with_kernels(dense_.scalar_type(), [&](const auto& kernels, auto t) {
      using T = decltype(t);
      T* const data = cpu::data<T>(dense_);
      const int64_t stride = dense_.stride(transposed ? 1 : 0);
      if constexpr (std::is_same_v<T, float>) {
        if (!transposed) in_place_ = {data, stride};
      }
      cut_ = [=, &kernels](const IndexRange& rows, const IndexRange& columns, float* to,
                           int64_t to_stride) {
        if (transposed) {
          const T* const from = data + columns.begin * stride + rows.begin;
          kernels.widen_transposed({from, stride, columns.count, rows.count}, to, to_stride);
        } else {
          const T* const from = data + rows.begin * stride + columns.begin;
          kernels.widen({from, stride, rows.count, columns.count}, to, to_stride);
        }
      };
    });
  }

  const DirectView& in_place() const { return in_place_; }

  // Copies these rows and columns to `to` [tall, stride], with zeros around them.
  void cut(const IndexRange& rows, const IndexRange& columns, int64_t tall, float* to,
           int64_t stride) const {
    if (rows.count < tall || columns.count < stride) {
      std::memset(to, 0, static_cast<size_t>(tall * stride) * sizeof(float));
    }
    cut_(rows, columns, to, stride);
  }

 private:
  Tensor dense_;
  DirectView in_place_;
  std::function<void(const IndexRange&, const IndexRange&, float*, int64_t)> cut_;
};

// A BlockGrid divides a result [m, n] into blocks. A block whose sums are in place needs no memory
// for its rows, so it has all of them: each tile of `b` is then copied once.
struct BlockGrid {
  int64_t rows, columns;  // of a block

  BlockGrid(int64_t m, int64_t n, bool in_place, int64_t threads)
      : rows(in_place ? round_up(m, kTileSide) : std::min(round_up(m, kTileSide), kMaxBlockSide)),
        columns(std::min(round_up(n, kTileSide), kMaxBlockSide)) {
    while (threads > 1 && ceil_div(m, rows) * ceil_div(n, columns) < kBlocksPerThread * threads &&
           std::max(rows, columns) > kMinBlockSide) {
      int64_t& side = rows >= columns ? rows : columns;
      side = round_up(side / 2, kMinBlockSide);
    }
  }
};

// A ProductBlock is one block, computed by one thread.
class ProductBlock {
 public:
  // `out` is set if the sums are in place; otherwise they are in tiles of the scratch memory.
  ProductBlock(const FactorMatrix& a, const FactorMatrix& b, const DirectView& out,
               const IndexRange& rows, const IndexRange& columns)
      : a_(a), b_(b), out_(out), rows_(rows), columns_(columns) {}

  static constexpr int64_t floats(int64_t rows, int64_t columns, bool in_place) {
    return kTileSide * kTileDepth + columns * kTileDepth + (in_place ? 0 : rows * columns);
  }

  // Computes the block's sums. `start` is the matrix that is added to, or null.
  void multiply(int64_t depth, const FactorMatrix* start, float* memory) {
    float* const left = memory;
    float* const right = left + kTileSide * kTileDepth;
    sums_ = right + tiles() * kTileSide * kTileDepth;
    if (start != nullptr && out_.data == nullptr) {
      for_each_tile([&](const IndexRange& rows, const IndexRange& columns, float* sums) {
        start->cut(rows, columns, round_up(rows.count, kPadMultiple), sums, kTileSide);
      });
    }
    for (int64_t first = 0; first < depth; first += kTileDepth) {
      const IndexRange deep = {first, std::min(kTileDepth, depth - first)};
      const int64_t fill = round_up(deep.count, kPadMultiple);
      for (int64_t tile = 0; tile < tiles(); ++tile) {
        b_.cut(deep, wide(tile), fill, right + tile * kTileSide * kTileDepth, kTileSide);
      }
      for (int64_t row = 0; row < rows_.count; row += kTileSide) {
        const int64_t high = round_up(tall(row).count, kPadMultiple);
        const DirectView rows = strip(tall(row), deep, left);
        for (int64_t tile = 0; tile < tiles(); ++tile) {
          const DirectView to = sums(row, tile);
          at::native::cpublas::brgemm(
              high, round_up(wide(tile).count, kPadMultiple), fill, rows.stride, kTileSide,
              to.stride, first > 0 || start != nullptr, rows.data,
              right + tile * kTileSide * kTileDepth, to.data, /*is_vnni=*/false);
        }
      }
    }
  }

  // Writes the sums, if they are not in place.
  template <typename T>
  void write(const cpu::DtypeKernels<T>& kernels, T* out, int64_t stride) const {
    for_each_tile([&](const IndexRange& rows, const IndexRange& columns, const float* sums) {
      kernels.narrow({sums, kTileSide, rows.count, columns.count},
                     out + rows.begin * stride + columns.begin, stride);
    });
  }

 private:
  int64_t tiles() const { return ceil_div(columns_.count, kTileSide); }
  IndexRange tall(int64_t row) const {
    return {rows_.begin + row, std::min(kTileSide, rows_.count - row)};
  }
  IndexRange wide(int64_t tile) const {
    const int64_t at = tile * kTileSide;
    return {columns_.begin + at, std::min(kTileSide, columns_.count - at)};
  }
  // Returns rows of the left factor, in place or copied.
  DirectView strip(const IndexRange& rows, const IndexRange& deep, float* memory) const {
    const int64_t high = round_up(rows.count, kPadMultiple),
                  fill = round_up(deep.count, kPadMultiple);
    const DirectView& factor = a_.in_place();
    if (factor.data != nullptr && high == rows.count && fill == deep.count)
      return {factor.at(rows.begin, deep.begin), factor.stride};
    a_.cut(rows, deep, high, memory, fill);
    return {memory, fill};
  }
  float* sums_tile(int64_t row, int64_t tile) const {
    return sums_ + (row * tiles() + tile * kTileSide) * kTileSide;
  }
  DirectView sums(int64_t row, int64_t tile) const {
    if (out_.data == nullptr) return {sums_tile(row, tile), kTileSide};
    return {out_.at(tall(row).begin, wide(tile).begin), out_.stride};
  }
  template <typename Work>
  void for_each_tile(const Work& work) const {
    for (int64_t row = 0; row < rows_.count; row += kTileSide) {
      for (int64_t tile = 0; tile < tiles(); ++tile)
        work(tall(row), wide(tile), sums_tile(row, tile));
    }
  }

  const FactorMatrix& a_;
  const FactorMatrix& b_;
  DirectView out_;
  IndexRange rows_, columns_;
  float* sums_ = nullptr;
};

static_assert(ProductBlock::floats(kMaxBlockSide, kMaxBlockSide, false) * sizeof(float) <=
              kMaxTiledProductScratch);

// Computes the product; `out` has rows without gaps.
void multiply(const Tensor& out, const Tensor& a, const Tensor& b, bool add) {
  const int64_t m = a.size(0), n = b.size(1);
  const FactorMatrix left(a), right(b), start(out);
  const bool in_place =
      start.in_place().data != nullptr && m % kPadMultiple == 0 && n % kPadMultiple == 0;
  const BlockGrid grid(m, n, in_place, at::get_num_threads());
  const int64_t num_block_columns = ceil_div(n, grid.columns);
  parallel_for(ceil_div(m, grid.rows) * num_block_columns, 1, [&](int64_t begin, int64_t end) {
    const torch::NoGradGuard no_grad;  // for this thread
    // From LibTorch's allocator, whose alignment brgemm requires, but no tensor: the memory of a
    // step's tensors is measured (engine/memory/activation_probe.h) and scaled to more rows, with
    // which this buffer does not grow.
    const auto floats =
        static_cast<size_t>(ProductBlock::floats(grid.rows, grid.columns, in_place));
    const std::unique_ptr<void, decltype(&c10::free_cpu)> memory(
        c10::alloc_cpu(floats * sizeof(float)), &c10::free_cpu);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / num_block_columns * grid.rows,
                    column = i % num_block_columns * grid.columns;
      ProductBlock block(left, right, in_place ? start.in_place() : DirectView(),
                         {row, std::min(grid.rows, m - row)},
                         {column, std::min(grid.columns, n - column)});
      block.multiply(a.size(1), add ? &start : nullptr, static_cast<float*>(memory.get()));
      if (in_place) continue;
      cpu::with_kernels(out.scalar_type(), [&](const auto& kernels, auto t) {
        block.write(kernels, cpu::data<decltype(t)>(out), out.stride(0));
      });
    }
    at::native::cpublas::brgemm_release();
  });
}

bool is_supported(const Tensor& x) {
  return x.is_cpu() && x.dim() == 2 && cpu::has_kernels(x.scalar_type());
}

}  // namespace

void tiled_product(const Tensor& out, const Tensor& a, const Tensor& b, bool add) {
  ZEROTH_CHECK(is_supported(out) && is_supported(a) && is_supported(b) && a.size(1) == b.size(0) &&
                   out.size(0) == a.size(0) && out.size(1) == b.size(1),
               "{} = {} {} x {} {}", fmt::join(out.sizes(), "x"), c10::toString(a.scalar_type()),
               fmt::join(a.sizes(), "x"), c10::toString(b.scalar_type()),
               fmt::join(b.sizes(), "x"));
  out.unsafeGetTensorImpl()->bump_version();  // as every operator that writes in place does
  if (out.numel() == 0) return;
  if (a.size(1) == 0) {
    if (!add) out.zero_();
  } else if (out.stride(1) == 1 || out.size(1) == 1) {
    multiply(out, a, b, add);
  } else {
    const Tensor dense = out.contiguous();
    multiply(dense, a, b, add);
    out.copy_(dense);
  }
}

}  // namespace zeroth::model
