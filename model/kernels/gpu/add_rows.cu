// The gradient of an embedding: positions, sorted by the row that they add to, are summed in fp32,
// in one order. A block sums one chunk of them. A second kernel joins the partial sums of a row
// whose positions span several chunks.
#include "base/launch.cuh"
#include "model/kernels/gpu/fused.h"
#include "model/kernels/gpu/vector.cuh"

namespace zeroth::model::gpu {
namespace {

constexpr int kColumns = 128;       // of a block, one per thread
constexpr int64_t kPositions = 32;  // of a chunk

int64_t num_pieces(int64_t count) {
  return (count + kPositions - 1) / kPositions;
}

// A PositionChunk is the range [begin, end) of positions. If the positions of its first or last row
// continue outside, their sums go to from_before or to_next.
struct PositionChunk {
  int64_t begin, end;
  float* from_before;
  float* to_next;

  __device__ PositionChunk(const AddRows& call, int64_t number, int64_t column)
      : begin(number * kPositions),
        end(min(begin + kPositions, call.count)),
        from_before(call.parts + 2 * number * call.width + column),
        to_next(from_before + call.width) {}
  __device__ bool begins_before(const AddRows& call, int64_t row) const {
    return begin > 0 && call.rows[begin - 1] == row;
  }
  __device__ bool goes_on(const AddRows& call, int64_t row) const {
    return end < call.count && call.rows[end] == row;
  }
};

template <typename Table>
__device__ void add_to(const AddRows& call, int64_t row, int64_t column, float sum) {
  Table* const at = static_cast<Table*>(call.table) + row * call.width + column;
  *at = narrow<Table>(widen(*at) + sum);
}

template <typename Table, typename Dy>
__global__ void sum_pieces(AddRows call) {
  const int64_t column = int64_t{blockIdx.y} * kColumns + threadIdx.x;
  if (column >= call.width) return;
  const PositionChunk piece(call, blockIdx.x, column);
  const Dy* const dy = static_cast<const Dy*>(call.dy) + column;
  float sum = 0;
  for (int64_t i = piece.begin; i < piece.end; ++i) {
    const int64_t row = call.rows[i];
    sum += widen(dy[call.order[i] * call.width]);
    if (i + 1 < piece.end && call.rows[i + 1] == row) continue;
    if (piece.begins_before(call, row)) {
      *piece.from_before = sum;
    } else if (i + 1 == piece.end && piece.goes_on(call, row)) {
      *piece.to_next = sum;
    } else {
      add_to<Table>(call, row, column, sum);
    }
    sum = 0;
  }
}

// Joins the partial sums of a row, in the chunk in which its positions begin.
template <typename Table>
__global__ void join_pieces(AddRows call) {
  const int64_t column = int64_t{blockIdx.y} * kColumns + threadIdx.x;
  if (column >= call.width) return;
  const PositionChunk first(call, blockIdx.x, column);
  const int64_t row = call.rows[first.end - 1];
  if (!first.goes_on(call, row) || first.begins_before(call, row)) return;
  float sum = *first.to_next;
  for (int64_t number = int64_t{blockIdx.x} + 1; number * kPositions < call.count; ++number) {
    const PositionChunk piece(call, number, column);
    if (call.rows[piece.begin] != row) break;
    sum += *piece.from_before;
  }
  add_to<Table>(call, row, column, sum);
}

template <typename Table, typename Dy>
void launch(const AddRows& call, cudaStream_t stream) {
  const dim3 blocks(static_cast<unsigned>(num_pieces(call.count)),
                    static_cast<unsigned>((call.width + kColumns - 1) / kColumns));
  launch_kernel(sum_pieces<Table, Dy>, blocks, kColumns, stream, call);
  launch_kernel(join_pieces<Table>, blocks, kColumns, stream, call);
}

}  // namespace

int64_t add_rows_parts(int64_t count) {
  return 2 * num_pieces(count);
}

void add_rows(ElementType table, ElementType dy, const AddRows& call, cudaStream_t stream) {
  dispatch_element(dy, [&](auto t) {
    using Dy = decltype(t);
    table == ElementType::kFloat ? launch<float, Dy>(call, stream) : launch<Dy, Dy>(call, stream);
  });
}

}  // namespace zeroth::model::gpu
