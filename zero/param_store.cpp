#include "zero/param_store.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "zero/unit.h"

namespace zeroth::zero {

struct ParamStore::ParamState {
  // The secondary shard of a unit (hpZ): the shards of all ranks with this rank's index in their
  // runs of neighboring ranks, so that each run has all shards.
  struct SecondaryShard {
    comm::Group* shard_group = nullptr;    // group that gathers use; null: they use all ranks
    comm::Group* replica_group = nullptr;  // ranks whose shards are kept
    torch::Tensor shards;                  // shards of `replica_group`, concatenated
    bool up_to_date = false;               // true if they have the last update
  };

  comm::Group* shard_group = nullptr;  // shard group of the unit
  SecondaryShard secondary;
  size_t store_index = 0;                       // index of a kBeforeUse unit's shard in its store
  std::vector<comm::CollectiveHandle> pending;  // the gather in flight
  offload::ChunkLease gathered;                 // input of the gather
  device::StreamEvent written;  // event after which values on the device are current; null: now
  bool present = false;
  int leases = 0;
};

ParamStore::ParamStore(const UnitPlan& plan, const comm::DeviceMesh& mesh, torch::Device device,
                       ParamStoreOptions options)
    : plan_(plan),
      mesh_(mesh),
      device_(device),
      options_(std::move(options)),
      buffers_(plan, options_.dtype, device),
      on_device_(offload::make_memory_store(device)),
      states_(plan.units.size()) {
  options_.shard_stores.resize(plan.units.size(), nullptr);
  if (options_.hpz_partition_size > 1) {  // groups are made by all ranks, whatever they hold
    for (const Unit& unit : plan.units) {
      mesh.secondary_shard_group(unit.num_replicas, options_.hpz_partition_size);
      mesh.secondary_replica_group(unit.num_replicas, options_.hpz_partition_size);
    }
  }
  for (size_t unit = 0; unit < plan.units.size(); ++unit) {
    offload::ShardStore*& store = options_.shard_stores[unit];
    if (store == nullptr) store = on_device_.get();
    states_[unit].shard_group = &mesh.shard_group(plan.units[unit].num_replicas);
    states_[unit].present = !is_gathered_before_use(unit);
    if (!is_gathered_before_use(unit)) continue;
    states_[unit].store_index = store->add(range(unit).size(), dtype(unit));
    if (options_.hpz_partition_size == 1) continue;
    auto& secondary = states_[unit].secondary;
    secondary.shard_group =
        &mesh.secondary_shard_group(plan.units[unit].num_replicas, options_.hpz_partition_size);
    secondary.replica_group =
        &mesh.secondary_replica_group(plan.units[unit].num_replicas, options_.hpz_partition_size);
    secondary.shards = torch::empty({secondary.replica_group->size() * range(unit).size()},
                                    torch::TensorOptions(device).dtype(dtype(unit)));
  }
}

ParamStore::~ParamStore() = default;

Range ParamStore::range(size_t unit) const {
  return plan_.units[unit].owned_range();
}

torch::Dtype ParamStore::dtype(size_t unit) const {
  return plan_.units[unit].dtype(options_.dtype);
}

bool ParamStore::is_gathered_before_use(size_t unit) const {
  return plan_.units[unit].is_gathered_before_use();
}

offload::ShardChunk ParamStore::tile(size_t unit) const {
  return {states_[unit].store_index, 0, range(unit).size()};
}

bool ParamStore::on_device(size_t unit) const {
  return !is_gathered_before_use(unit) || options_.shard_stores[unit] == on_device_.get();
}

// With one rank a shard is the full unit: the copy on the device for the lease serves as the unit.
bool ParamStore::aliases_store(size_t unit) const {
  return plan_.units[unit].is_unsharded() && options_.staging && !on_device(unit);
}

offload::ChunkLease ParamStore::acquire_shard(size_t unit, torch::Device device,
                                              offload::Access access,
                                              const std::optional<device::StreamEvent>& idle) {
  const bool shared = on_device(unit) && device != device_;
  const bool waits = on_device(unit) && order_written(unit);
  const Range own = range(unit);
  offload::ChunkLease lease =
      is_gathered_before_use(unit)
          ? options_.shard_stores[unit]->acquire(tile(unit), shared ? device_ : device, access)
          : offload::ChunkLease(buffers_.whole(unit).narrow(0, own.begin, own.size()));
  if (!shared) return lease;
  ZEROTH_CHECK(options_.staging, "unit {} is on {}, requested on {}", plan_.units[unit].name,
               device_.str(), device.str());
  return options_.staging->lease(lease.tensor(), device, access,
                                 idle && !waits ? *idle : options_.staging->copies().record_event(),
                                 &states_[unit].written);
}

torch::Tensor ParamStore::in_place(size_t unit) const {
  // With staging, an update on the CPU is written back to the device later.
  if (on_device(unit) && (!device_.is_cpu() || options_.staging)) return {};
  if (is_gathered_before_use(unit))
    return options_.shard_stores[unit]->in_place(states_[unit].store_index);
  const Range own = range(unit);
  return buffers_.whole(unit).narrow(0, own.begin, own.size());
}

std::vector<bool> ParamStore::present() const {
  std::vector<bool> present;
  for (const ParamState& state : states_) present.push_back(state.present);
  return present;
}

offload::Reads ParamStore::reads(const std::vector<size_t>& units) const {
  offload::Reads reads;
  const std::set<offload::ShardStore*> all = stores();
  if (all == std::set<offload::ShardStore*>{on_device_.get()}) return reads;
  for (offload::ShardStore* store : all) reads[store];
  for (const size_t unit : units) reads[options_.shard_stores[unit]].push_back(tile(unit));
  return reads;
}

void ParamStore::begin_gather(size_t unit) {
  ParamState& state = states_[unit];
  if (state.present) return;
  const torch::NoGradGuard no_grad;
  if (state.secondary.shard_group != nullptr) {
    buffers_.allocate(unit);
    issue(unit, [&] { gather_secondary(unit); });
  } else {
    gather_from_all(unit);
  }
  state.present = true;
}

bool ParamStore::order_written(size_t unit) {
  if (!states_[unit].written) return false;
  options_.staging->copies().wait_event(std::exchange(states_[unit].written, {}));
  return true;
}

// Gathers that have to wait for an update or a copy are issued beside the current stream: only uses
// of the unit wait for its gather.
void ParamStore::issue(size_t unit, const std::function<void()>& gather) {
  ParamState& state = states_[unit];
  const auto ordered = [&] {
    order_written(unit);
    state.gathered.block_current_stream();
    gather();
  };
  if (!options_.staging || (!state.written && on_device(unit))) return ordered();
  state.written = options_.staging->copies().run_on_side_stream(
      {options_.staging->copies().record_event()}, ordered);
}

void ParamStore::gather_from_all(size_t unit) {
  torch::Tensor own;
  if (is_gathered_before_use(unit)) own = read_shard(unit);
  if (aliases_store(unit)) return;
  issue(unit, [&] {
    ParamState& state = states_[unit];
    if (!is_gathered_before_use(unit))
      own = acquire_shard(unit, device_, offload::Access::kRead).tensor();
    // An alias with its own version counter: a graph kept from forward still refers to the
    // parameters.
    state.pending.push_back(state.shard_group->all_gather(
        buffers_.whole(unit).variable_data(), own, "parameters of " + plan_.units[unit].label()));
  });
}

// The first gather after an update refreshes the secondary shards. All gathers, that one too, then
// use the secondary shard group only. The shards of a run of ranks are adjacent in the unit.
void ParamStore::gather_secondary(size_t unit) {
  const std::string label = plan_.units[unit].label();
  auto& secondary = states_[unit].secondary;
  const int64_t shard_numel = range(unit).size();
  if (!secondary.up_to_date) {
    const offload::ChunkLease own =
        options_.shard_stores[unit]->acquire(tile(unit), device_, offload::Access::kRead);
    secondary.replica_group->all_gather(secondary.shards, own.tensor(), "near shares of " + label)
        .wait();
    secondary.up_to_date = true;
  }
  const torch::Tensor whole = buffers_.whole(unit).variable_data();
  const int64_t run_numel = secondary.shard_group->size() * shard_numel;
  for (int64_t i = 0; i < secondary.replica_group->size(); ++i) {
    states_[unit].pending.push_back(secondary.shard_group->all_gather(
        whole.narrow(0, i * run_numel, run_numel),
        secondary.shards.narrow(0, i * shard_numel, shard_numel), "parameters of " + label));
  }
}

// Allocates the buffer; `gathered` holds the input of the gather.
torch::Tensor ParamStore::read_shard(size_t unit) {
  if (reading_.size() >= options_.max_reads) end_gather(reading_.front());
  // Operations that can fail come before any change of state.
  offload::ChunkLease gathered = options_.shard_stores[unit]->acquire_async(tile(unit), device_);
  const torch::Tensor own = gathered.tensor();
  if (aliases_store(unit)) {
    buffers_.alias_memory(unit, own.data_ptr());  // ordered by lease()
  } else {
    buffers_.allocate(unit);
    reading_.push_back(unit);
  }
  states_[unit].gathered = std::move(gathered);
  return own;
}

void ParamStore::end_gather(size_t unit) {
  for (comm::CollectiveHandle& pending : states_[unit].pending) pending.wait();
  states_[unit].pending.clear();
  if (std::erase(reading_, unit) > 0) states_[unit].gathered = {};
}

Lease ParamStore::lease(size_t block) {
  for (const size_t unit : plan_.block_units[block]) {
    order_written(unit);  // does not wait for other ranks
    end_gather(unit);
    states_[unit].gathered.block_current_stream();
    ++states_[unit].leases;
  }
  return {this, [block](ParamStore* store) {
            for (const size_t unit : store->plan_.block_units[block]) --store->states_[unit].leases;
          }};
}

void ParamStore::release(size_t unit) {
  ParamState& state = states_[unit];
  if (!state.present || !is_gathered_before_use(unit)) return;
  end_gather(unit);
  buffers_.release(unit);
  state.gathered = {};
  state.present = false;
}

void ParamStore::release_all_but(const std::vector<size_t>& kept) {
  for (size_t unit = 0; unit < states_.size(); ++unit) {
    const bool keep = std::find(kept.begin(), kept.end(), unit) != kept.end();
    if (!keep && states_[unit].leases == 0) release(unit);
  }
}

void ParamStore::mark_updated(size_t unit, const device::StreamEvent& written) {
  ParamState& state = states_[unit];
  ZEROTH_CHECK(state.leases == 0, "unit {} is updated while leased", plan_.units[unit].name);
  release(unit);
  state.secondary.up_to_date = false;
  if (plan_.units[unit].gather_policy == GatherPolicy::kAfterUpdate) {
    end_gather(unit);
    state.present = false;
  }
  if (written && on_device(unit)) state.written = written;
}

int64_t ParamStore::persistent_bytes() const {
  int64_t bytes = 0;
  for (size_t unit = 0; unit < states_.size(); ++unit) {
    const torch::Tensor& kept =
        is_gathered_before_use(unit) ? states_[unit].secondary.shards : buffers_.whole(unit);
    if (kept.defined()) bytes += static_cast<int64_t>(kept.nbytes());
  }
  for (const offload::ShardStore* store : stores()) {
    bytes += store->bytes().device + store->bytes().host;
  }
  return bytes;
}

std::set<offload::ShardStore*> ParamStore::stores() const {
  return {options_.shard_stores.begin(), options_.shard_stores.end()};
}

}  // namespace zeroth::zero
