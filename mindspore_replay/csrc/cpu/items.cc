// The kernels of buffers whose rows differ in length, for compiled graphs. Each calls the kernel of its name with
// references in place of rows (core/items.h), and copies the items, under the lock of the buffer.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "adapters.h"
#include "buffer.h"
#include "core/items.h"
#include "core/scratch.h"

namespace replay {
namespace {

using Kernel = int (*)(int, void **, int *, int64_t **, const char **, void *, void *);

// Says what the arguments are, as store/base/length_groups.py has it.
struct ItemsPlan {
  struct Kind {
    int64_t field;    // the one in place of which the kernel has references
    int64_t longest;  // items of the longest row
    int64_t at_random;
  };
  struct Field {
    int64_t arena;  // -1 for rows of one length
    int64_t kind;
  };

  int64_t kinds, arenas, fields;
  int64_t before;  // arguments of the kernel before its fields

  int64_t Size() const { return 4 + 3 * kinds + 2 * fields + arenas; }
  const Kind *Kinds() const { return reinterpret_cast<const Kind *>(this + 1); }
  const Field *Fields() const { return reinterpret_cast<const Field *>(Kinds() + kinds); }
  const int64_t *KindsOfArenas() const { return reinterpret_cast<const int64_t *>(Fields() + fields); }
};

// The arguments: the plan, head, the random state and the arenas; then those of the kernel, with lengths, int32, for each
// kind before the fields. A field of rows of any length is padded or, if the caller says so and it has no axis for the
// rows, has the items of all one behind the other.
class ItemArguments {
 public:
  ItemArguments(const Arguments &raw, bool may_pack, bool in_graph)
      : raw_(raw), plan_(*raw.data<ItemsPlan>(0)), may_pack_(may_pack), in_graph_(in_graph) {}

  // Sets the arguments of the kernel. Returns false unless all match the plan.
  bool Init() {
    constexpr int64_t kMost = 1 << 10;
    if (raw_.elements(0) < 4 || std::max({plan_.kinds, plan_.arenas, plan_.fields, plan_.before}) > kMost ||
        std::min({plan_.kinds, plan_.arenas, plan_.fields, plan_.before}) < 0 || raw_.elements(0) != plan_.Size() ||
        raw_.size() < FirstField() + plan_.fields) {
      return false;
    }
    rows_.resize(static_cast<size_t>(plan_.kinds));
    shapes_.resize(static_cast<size_t>(plan_.fields));
    for (int64_t i = 3 + plan_.arenas; i < raw_.size(); ++i) {
      if (i < FirstLengths() || i >= FirstField()) Add(static_cast<int>(i));
    }
    for (int kind = 0; kind < plan_.kinds; ++kind) {
      const int64_t field = plan_.Kinds()[kind].field;
      if (field < 0 || field >= plan_.fields || plan_.Fields()[field].kind != kind || !SetRows(kind)) return false;
    }
    for (int64_t arena = 0; arena < plan_.arenas; ++arena) {
      const int64_t kind = plan_.KindsOfArenas()[arena];
      if (kind < 0 || kind >= plan_.kinds) return false;
    }
    for (const auto &rows : rows_) bytes_.resize(std::max(bytes_.size(), rows.size()));
    for (int field = 0; field < plan_.fields; ++field) {
      if (plan_.Fields()[field].arena >= 0 && !LendReferences(field)) return false;
    }
    return true;
  }

  bool IsPacked(int field) const { return may_pack_ && Lead(field) == 0; }
  const void *head() const { return raw_.data<void>(1); }
  RandomState *random() const { return raw_.data<RandomState>(2); }
  const ItemsPlan &plan() const { return plan_; }
  Vector<Reference> &rows(int kind) { return rows_[static_cast<size_t>(kind)]; }
  int32_t *lengths(int kind) const { return raw_.data<int32_t>(FirstLengths() + kind); }
  char *field(int field) const { return raw_.data<char>(FirstField() + field); }
  Arguments inner() {
    return {static_cast<int>(params_.size()), params_.data(), ndims_.data(), shapes_at_.data(), dtypes_.data()};
  }

  Status Call(Kernel kernel) {
    const Arguments args = inner();
    Caller caller(in_graph_);
    return static_cast<Status>(
        kernel(args.size(), params_.data(), ndims_.data(), shapes_at_.data(), dtypes_.data(), &caller, nullptr));
  }

  Arena ArenaOf(int field) const { return ArenaNumber(plan_.Fields()[field].arena); }
  Arena ArenaNumber(int64_t arena) const {
    const int at = static_cast<int>(3 + arena);
    return {raw_.data<char>(at), raw_.dim(at, 0), raw_.RowElements(at) * ElementBytes(raw_.dtype(at))};
  }

  // Returns the items of a padded row of a field, or of all rows one behind the other.
  int64_t Most(int field) const { return raw_.dim(FirstField() + field, Lead(field)); }
  int64_t MostOf(int kind) const { return Most(static_cast<int>(plan_.Kinds()[kind].field)); }
  Arena ArenaOfKind(int kind) const { return ArenaOf(static_cast<int>(plan_.Kinds()[kind].field)); }

 private:
  int FirstLengths() const { return static_cast<int>(3 + plan_.arenas + plan_.before); }
  int FirstField() const { return static_cast<int>(FirstLengths() + plan_.kinds); }
  int ArenaAt(int field) const { return static_cast<int>(3 + plan_.Fields()[field].arena); }
  // Returns the axes of a field before those of a row.
  int Lead(int field) const { return raw_.ndim(FirstField() + field) - raw_.ndim(ArenaAt(field)); }

  void Add(int i) {
    params_.push_back(raw_.data<void>(i));
    ndims_.push_back(raw_.ndim(i));
    shapes_at_.push_back(raw_.shape(i));
    dtypes_.push_back(raw_.dtype(i));
  }

  // True if a field has n rows of its arena.
  bool HasRows(int field, int64_t n) const {
    if (plan_.Fields()[field].arena >= plan_.arenas) return false;
    const int at = FirstField() + field, arena = ArenaAt(field), lead = Lead(field);
    if (raw_.ndim(arena) < 1 || raw_.dim(arena, 0) < 1 || lead < 0 || !SameDtype(raw_.dtype(at), raw_.dtype(arena)) ||
        DtypeOf(raw_.dtype(at)) == kNoDtype) {
      return false;
    }
    for (int axis = 1; axis < raw_.ndim(arena); ++axis) {
      if (raw_.dim(at, lead + axis) != raw_.dim(arena, axis)) return false;
    }
    if (IsPacked(field)) return true;
    int64_t rows = 1;
    for (int axis = 0; axis < lead; ++axis) rows *= raw_.dim(at, axis);
    return rows == n;
  }

  bool SetRows(int kind) {
    const int at = FirstLengths() + kind, field = static_cast<int>(plan_.Kinds()[kind].field);
    if (plan_.Fields()[field].arena < 0) return false;
    const int64_t n = raw_.elements(at);
    if (n < 1 || DtypeOf(raw_.dtype(at)) != kInt32 || !HasRows(field, n)) return false;
    rows(kind).resize(static_cast<size_t>(n));
    return true;
  }

  // Gives the kernel what it stores of a field: references, or a byte for each row.
  bool LendReferences(int field) {
    const int64_t kind = plan_.Fields()[field].kind;
    if (kind < 0 || kind >= plan_.kinds) return false;
    const auto n = static_cast<int64_t>(rows_[kind].size());
    if (!HasRows(field, n)) return false;
    const bool is_first = plan_.Kinds()[kind].field == field;
    if (!is_first && ArenaOf(field).items != ArenaOfKind(static_cast<int>(kind)).items) return false;
    std::vector<int64_t> &shape = shapes_[static_cast<size_t>(field)];
    shape.assign(raw_.shape(FirstField() + field), raw_.shape(FirstField() + field) + Lead(field));
    if (IsPacked(field) && n > 1) shape.push_back(n);
    if (is_first) shape.push_back(2);
    const auto i = static_cast<size_t>(plan_.before + field);
    params_[i] = is_first ? static_cast<void *>(rows_[kind].data()) : bytes_.data();
    ndims_[i] = static_cast<int>(shape.size());
    shapes_at_[i] = shape.data();
    dtypes_[i] = is_first ? "int64" : "uint8";
    return true;
  }

  const Arguments &raw_;
  const ItemsPlan &plan_;
  const bool may_pack_;
  const bool in_graph_;
  std::vector<Vector<Reference>> rows_;
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<uint8_t> bytes_;
  std::vector<void *> params_;
  std::vector<int> ndims_;
  std::vector<int64_t *> shapes_at_;
  std::vector<const char *> dtypes_;
};

// Reads rows by a kernel, and pads them.
Status ReadItems(ItemArguments *args, Kernel kernel) {
  const Status status = args->Call(kernel);
  if (status != kOk) return status;
  const ItemsPlan &plan = args->plan();
  for (int kind = 0; kind < plan.kinds; ++kind) {
    Vector<Reference> &rows = args->rows(kind);
    const Arena arena = args->ArenaOfKind(kind);
    if (!std::all_of(rows.begin(), rows.end(), [&](const Reference &row) { return arena.Holds(row); })) {
      return kBadArguments;
    }
    const ItemsPlan::Kind &of_kind = plan.Kinds()[kind];
    const bool takes_bits = of_kind.at_random != 0 && args->MostOf(kind) < of_kind.longest;
    CutRows(rows.data(), static_cast<int64_t>(rows.size()), args->MostOf(kind), takes_bits ? args->random() : nullptr);
    std::transform(rows.begin(), rows.end(), args->lengths(kind),
                   [](const Reference &row) { return static_cast<int32_t>(row.length); });
  }
  for (int field = 0; field < plan.fields; ++field) {
    if (plan.Fields()[field].arena < 0) continue;
    const Vector<Reference> &rows = args->rows(static_cast<int>(plan.Fields()[field].kind));
    PadRows(args->ArenaOf(field), rows.data(), static_cast<int64_t>(rows.size()), args->Most(field),
            args->field(field));
  }
  return kOk;
}

using InsertArgs = Bound<OperatorNumber("insert")>;

// Places the new rows of a kind behind those stored, and raises the number of the oldest rows to evict for them.
Status PlaceNew(ItemArguments *args, const InsertArgs &inner, const State &state, int kind, int64_t *evicted) {
  const ItemsPlan::Kind &of_kind = args->plan().Kinds()[kind];
  const Arena arena = args->ArenaOfKind(kind);
  Vector<Reference> &rows = args->rows(kind);
  const int32_t *lengths = args->lengths(kind);
  int64_t most = of_kind.longest, all = arena.items, sum = 0;
  for (int field = 0; field < args->plan().fields; ++field) {
    const ItemsPlan::Field &one = args->plan().Fields()[field];
    if (one.arena < 0 || one.kind != kind) continue;
    int64_t &bound = args->IsPacked(field) ? all : most;
    bound = std::min(bound, args->Most(field));
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (lengths[i] < 0 || lengths[i] > most) return kBadLength;
    rows[i].length = lengths[i];
    sum += lengths[i];
  }
  if (sum > all) return kBadLength;
  const auto *stored = inner.raw().data<Reference>(static_cast<int>(of_kind.field));
  const int64_t count = *state.count, head = *state.head;
  const auto row = [&](int64_t i) -> const Reference & { return stored[SlotOf(i, head, state.capacity)]; };
  int64_t tail = count > 0 ? row(count - 1).offset + row(count - 1).length : 0;
  if (tail < 0) return kBadArguments;
  tail = PlaceRows(rows.data(), static_cast<int64_t>(rows.size()), tail, arena.items);
  int64_t before = 0;
  while (before < count && row(before).offset < tail - arena.items) ++before;
  *evicted = std::max(*evicted, before);
  return kOk;
}

// Evicts the oldest rows of a ring that has so many. If the process dies, rows in shared memory are gone when this begins.
void Evict(const InsertArgs &args, const State &state, int64_t rows, Shared *shared) {
  if (shared != nullptr) shared->Evict(*state.serials - *state.count + rows);
  Vector<int64_t> changed;
  for (int64_t i = 0; i < rows; ++i) state.row_state.Set(SlotOf(i, *state.head, state.capacity), 0, &changed);
  *state.head = static_cast<int32_t>((*state.head + rows) % state.capacity);
  *state.count = static_cast<int32_t>(*state.count - rows);
  Clock *clock = state.row_state.clock;
  clock->fresh = std::max(clock->fresh, *state.serials - *state.count);
  if (args.HasGroup(kEpisodesGroup)) state.Get<Timeline>().LosePast(0, &changed);
  state.row_state.tree.Refresh(&changed);
}

// Stores rows by a kernel, evicts those whose items they need, and stores their items.
Status InsertItems(ItemArguments *args, Kernel kernel, Shared *shared) {
  const Arguments given = args->inner();
  Binding binding;
  if (!Binder<OperatorNumber("insert")>(given, &binding).Bind()) return kBadArguments;
  const InsertArgs inner(given, binding);
  const State state = StateOf(inner);
  if (inner.columns() != args->plan().fields || !inner.HasGroup(kRowStateGroup) || inner.HasGroup(kReservoirGroup) ||
      !state.IsConsistent()) {
    return kBadArguments;
  }
  int64_t evicted = 0;
  for (int kind = 0; kind < args->plan().kinds; ++kind) {
    const Status status = PlaceNew(args, inner, state, kind, &evicted);
    if (status != kOk) return status;
  }
  if (evicted > 0) {  // it may be more rows than those whose slots the new ones take
    const Status status = WithRows(inner, state, [&](const auto &rows) {
      return HasRoom(rows, state.capacity - *state.count + evicted) ? kOk : kFull;
    });
    if (status != kOk) return status;
  }
  const int64_t all = *state.count + inner.n();
  const Status status = args->Call(kernel);
  if (status != kOk) return status;
  const int64_t rest = evicted - (all - *state.count);
  if (rest > 0) Evict(inner, state, rest, shared);
  for (int field = 0; field < args->plan().fields; ++field) {
    const ItemsPlan::Field &one = args->plan().Fields()[field];
    if (one.arena < 0) continue;
    const Arena arena = args->ArenaOf(field);
    const Vector<Reference> &rows = args->rows(static_cast<int>(one.kind));
    if (args->IsPacked(field)) {
      PackRows(arena, rows.data(), static_cast<int64_t>(rows.size()), args->field(field), true);
      continue;
    }
    const int64_t row_bytes = args->Most(field) * arena.item_bytes;
    for (size_t i = 0; i < rows.size(); ++i) {
      std::memcpy(arena.At(rows[i]), args->field(field) + static_cast<int64_t>(i) * row_bytes,
                  static_cast<size_t>(arena.Bytes(rows[i])));
    }
  }
  for (int64_t i = 0; i < args->plan().arenas; ++i) {  // late items are zeros until they come
    const ItemsPlan::Field *fields = args->plan().Fields(), *end = fields + args->plan().fields;
    if (std::any_of(fields, end, [i](const ItemsPlan::Field &one) { return one.arena == i; })) continue;
    const Arena arena = args->ArenaNumber(i);
    for (const Reference &row : args->rows(static_cast<int>(args->plan().KindsOfArenas()[i]))) {
      std::memset(arena.At(row), 0, static_cast<size_t>(arena.Bytes(row)));
    }
  }
  return kOk;
}

// Runs a kernel on rows of any length under the lock of the buffer.
template <typename Use>
int Run(const char *name, const Arguments &raw, bool may_pack, void *of_mindspore, const Use &use) {
  const auto run = [&] {
    if (raw.size() < 3 || DtypeOf(raw.dtype(0)) != kInt64 || DtypeOf(raw.dtype(2)) != kInt64) return kBadArguments;
    ItemArguments args(raw, may_pack, of_mindspore != nullptr);
    if (!args.Init()) return kBadArguments;
    const Exclusive exclusive(args.head(), may_pack);
    if (!exclusive.held()) return kNoLock;
    Shared *shared = SharedOf(exclusive.process_lock());
    Status status = use(&args, shared);
    if (status == kFull && of_mindspore == nullptr) {
      status = Answer(exclusive.process_lock(), kInserts, static_cast<int64_t>(args.rows(0).size()), status);
    }
    return shared != nullptr && HasFailed(shared->address()) ? kNoDisk : status;
  };
  const Status status = run();
  if (status != kOk && of_mindspore != nullptr) Fail(name, status);
  return status;
}

}  // namespace

#define MINDSPORE_REPLAY_READS_ITEMS(name)                                                                   \
  MINDSPORE_REPLAY_EXPORT int replay_##name(int, void **, int *, int64_t **, const char **, void *, void *); \
  MINDSPORE_REPLAY_EXPORT int replay_##name##_items(int nparam, void **params, int *ndims, int64_t **shapes, \
                                                    const char **dtypes, void *, void *of_mindspore) {       \
    return Run("replay_" #name, Arguments(nparam, params, ndims, shapes, dtypes), false, of_mindspore,       \
               [](ItemArguments *args, Shared *) { return ReadItems(args, replay_##name); });                \
  }

MINDSPORE_REPLAY_READS_ITEMS(sample)
MINDSPORE_REPLAY_READS_ITEMS(read)
MINDSPORE_REPLAY_READS_ITEMS(sample_groups)

MINDSPORE_REPLAY_EXPORT int replay_insert(int, void **, int *, int64_t **, const char **, void *, void *);

MINDSPORE_REPLAY_EXPORT int replay_insert_items(int nparam, void **params, int *ndims, int64_t **shapes,
                                                const char **dtypes, void *, void *of_mindspore) {
  return Run("replay_insert", Arguments(nparam, params, ndims, shapes, dtypes), true, of_mindspore,
             [](ItemArguments *args, Shared *shared) { return InsertItems(args, replay_insert, shared); });
}

}  // namespace replay
