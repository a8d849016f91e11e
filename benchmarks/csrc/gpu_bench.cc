// Times the GPU's kernels, each against its floor in the same run: the bytes that it reads and writes over the
// bandwidth of a large copy, or the time of an empty launch, whichever is longer.
//
//     gpu_bench [ROUNDS]
//
// A time is the median of many rounds, of a CUDA graph of 50 calls each, which leaves out what the host takes to call;
// the workloads take turns. benchmarks/gpu builds it with nvcc, or for a device that tests/csrc/emulated_cuda.h
// emulates, where buffers are small and times mean nothing. Exit code: 0 unless a call fails.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "call.h"
#include "operators.h"
#include "states.h"

#define DECLARE(name) extern "C" KernelFunction replay_##name;
ALL_OPERATORS(DECLARE)

Kernel KernelOf(const std::string &name) {
#define WITH_NAME(name) {#name, replay_##name},
  static const std::map<std::string, Kernel> kernels = {ALL_OPERATORS(WITH_NAME)};
  return kernels.at(name);
}

namespace {

using namespace states;

#ifdef MINDSPORE_REPLAY_EMULATED
constexpr int kCalls = 2;
constexpr int kRounds = 1;
constexpr int64_t kRows = 1 << 10, kAtariRows = 64, kSequences = 1 << 10, kCopied = 1 << 20;
#else
constexpr int kCalls = 50;
constexpr int kRounds = 31;
constexpr int64_t kRows = 1 << 20, kAtariRows = 1 << 14, kSequences = 1 << 17, kCopied = 1 << 30;
#endif
const Columns kPairs = {{"uint8", {84, 84, 4}}, {"uint8", {84, 84, 4}}};

cudaStream_t the_stream;

// Buffers in GPU memory, and calls on them.
class Workloads {
 public:
  struct Workload {
    std::string name;
    std::function<void()> launch;
    double bytes;  // read and written; 0 for those of a copy or an empty launch
    std::vector<double> seconds;
  };

  // Adds one or several calls that follow each other on one state. `bytes` are those of the rows, once.
  void Add(const std::string &name, const std::vector<std::string> &operators, Arguments state, int64_t bytes) {
    states_.push_back(std::move(state));
    std::vector<std::function<void()>> calls;
    for (const std::string &one : operators) calls.push_back(CallOf(one, &states_.back()));
    const auto run = [calls] {
      for (const auto &call : calls) call();
    };
    all.push_back({name, run, 2.0 * static_cast<double>(bytes), {}});
  }

  std::vector<Workload> all;

 private:
  std::function<void()> CallOf(const std::string &name, Arguments *state) {
    calls_.emplace_back(state->For(SignatureOf(name)));
    Arrays *arrays = &calls_.back();
    for (void *&param : arrays->params) param = memory_.CopyOf(static_cast<char *>(param), arrays->BytesOf(&param));
    return [name, arrays] {
      const int status = arrays->Launch(KernelOf(name), the_stream);
      if (status != replay::kOk) Fail(name, "status " + std::to_string(status));
    };
  }

  DeviceMemory memory_;
  std::list<Arguments> states_;  // whose addresses name the copies in GPU memory
  std::list<Arrays> calls_;
};

int64_t RowBytes(const Columns &columns) {
  int64_t bytes = 0;
  for (const Column &column : columns) bytes += Elements(column.shape) * replay::ElementBytes(column.dtype);
  return bytes;
}

void AddRings(Workloads *workloads) {
  const Arguments cartpole = Ring(kCartPole, kRows, 100), pairs = Ring(kPairs, kAtariRows, 0);
  for (const int64_t n : {int64_t{1}, std::min<int64_t>(4096, kRows / 4)}) {
    workloads->Add("insert " + std::to_string(n) + ", CartPole", {"insert"},
                   cartpole.With({{"rows", Rows(kCartPole, {n})}, {"first", One("int64")}}), n * RowBytes(kCartPole));
  }
  for (const int64_t n : {std::min<int64_t>(256, kAtariRows / 4), std::min<int64_t>(4096, kAtariRows / 2)}) {
    const states::Sampling uniform = {n, 0, 1, 0, 0, 0, 0, 0, 0};
    workloads->Add("sample " + std::to_string(n) + ", CartPole", {"sample"},
                   Sample(cartpole, uniform, RowOutputs(kCartPole, n)), n * RowBytes(kCartPole));
    workloads->Add("sample " + std::to_string(n) + ", Atari pairs", {"sample"},
                   Sample(pairs, uniform, RowOutputs(kPairs, n)), n * RowBytes(kPairs));
  }
}

void AddSequences(Workloads *workloads) {
  constexpr int64_t kSamples = 32, kSteps = 80;
  const Arguments buffer = WithEpisodes(kCartPole, kSequences, {40, 40, 10, 1, 1});
  std::vector<Output> outputs = {Handles(kSamples),
                                 ImportanceWeights(kSamples),
                                 {{1, 0, 0, 0, -40, 1, kSteps}, Zeros("bool", {kSamples, kSteps})}};
  const Item rows = Rows(kCartPole, {kSamples, kSteps});
  for (size_t i = 0; i < rows.size(); ++i) {
    outputs.push_back({{0, static_cast<int64_t>(i), 0, 0, -40, 1, kSteps}, rows[i]});
  }
  workloads->Add("sequences of 80, 32 by priority", {"sample"},
                 Sample(buffer, {kSamples, 2, 1, 0, 0, 0, 1, 0, 0}, outputs), kSamples * kSteps * RowBytes(kCartPole));
}

void AddPrioritized(Workloads *workloads) {
  const Arguments buffer = Weighted(kCartPole, MixedWeights(kRows));
  for (const int64_t n : {std::min<int64_t>(256, kRows / 8), std::min<int64_t>(4096, kRows / 4)}) {
    std::vector<Output> outputs = RowOutputs(kCartPole, n);
    outputs.insert(outputs.begin(), {Handles(n), ImportanceWeights(n)});
    const Arguments sample = Sample(buffer, {n, 2, 1, 0, 0, 0, 0, 0, 0}, outputs);
    // Handles from all over the buffer; those of the sample lie elsewhere in memory, which makes no difference.
    const Arguments update = {{"handles", Int64(Range(kRows, n, kRows / n))},
                              {"priority", Floats(std::vector<float>(static_cast<size_t>(n), 0.7f))},
                              {"invalid", One("int32")}};
    const std::string rows = std::to_string(n) + ", CartPole";
    workloads->Add("prioritized sample + update " + rows, {"sample", "update_priorities"}, sample.With(update),
                   n * RowBytes(kCartPole));
    workloads->Add("prioritized sample " + rows, {"sample"}, sample, n * RowBytes(kCartPole));
    workloads->Add("update of priorities " + rows, {"update_priorities"}, buffer.With(update), 0);
  }
}

// A large copy and an empty launch, the floors.
void AddFloors(Workloads *workloads, void *from, void *to) {
  workloads->all.push_back(
      {"copy", [=] { MustSucceed(cudaMemcpyAsync(to, from, kCopied, cudaMemcpyDeviceToDevice, the_stream)); }, 0, {}});
  workloads->all.push_back({"launch", [=] { MustSucceed(cudaMemsetAsync(to, 0, 4, the_stream)); }, 0, {}});
}

// A CUDA graph of calls, and the seconds that one of them takes.
class Timer {
 public:
  explicit Timer(const Workloads::Workload &workload) : calls_(workload.name == "copy" ? 1 : kCalls) {
    workload.launch();  // what the first call allocates
    Finish(workload.name);
    cudaGraph_t graph;
    MustSucceed(cudaStreamBeginCapture(the_stream, cudaStreamCaptureModeThreadLocal));
    for (int call = 0; call < calls_; ++call) workload.launch();
    MustSucceed(cudaStreamEndCapture(the_stream, &graph));
    MustSucceed(cudaGraphInstantiateWithFlags(&calls_in_turn_, graph, 0));
    MustSucceed(cudaEventCreate(&begin_));
    MustSucceed(cudaEventCreate(&end_));
  }

  double Seconds(const std::string &name) const {
    MustSucceed(cudaEventRecord(begin_, the_stream));
    MustSucceed(cudaGraphLaunch(calls_in_turn_, the_stream));
    MustSucceed(cudaEventRecord(end_, the_stream));
    Finish(name);
    float milliseconds = 0;
    MustSucceed(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return milliseconds / 1000.0 / calls_;
  }

 private:
  static void Finish(const std::string &name) {
    MustSucceed(cudaStreamSynchronize(the_stream));
    const char *kernel = "";
    const int status = replay_take_failure(&kernel);
    if (status != replay::kOk) Fail(name, std::string(kernel) + " gave status " + std::to_string(status));
  }

  int calls_;
  cudaGraphExec_t calls_in_turn_;
  cudaEvent_t begin_, end_;
};

double MedianOf(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void Measure(Workloads *workloads, int rounds) {
  std::vector<Timer> timers(workloads->all.begin(), workloads->all.end());
  for (int round = -3; round < rounds; ++round) {  // the first are not counted
    for (size_t i = 0; i < timers.size(); ++i) {
      const double seconds = timers[i].Seconds(workloads->all[i].name);
      if (round >= 0) workloads->all[i].seconds.push_back(seconds);
    }
  }
}

void Show(Workloads *workloads) {
  const double launch = MedianOf(workloads->all.back().seconds);
  workloads->all.pop_back();
  const double bandwidth = 2.0 * kCopied / MedianOf(workloads->all.back().seconds);
  workloads->all.pop_back();
  std::printf("copies %.3f TB/s, an empty launch %.2f us\n", bandwidth / 1e12, launch * 1e6);
  for (const Workloads::Workload &workload : workloads->all) {
    const double seconds = MedianOf(workload.seconds), floor = std::max(workload.bytes / bandwidth, launch);
    std::printf("%-45s %10.2f us   floor %8.2f us   %5.2f of it\n", workload.name.c_str(), seconds * 1e6, floor * 1e6,
                floor / seconds);
  }
}

}  // namespace

int main(int argc, char **argv) {
  const int rounds = argc == 2 ? std::max(std::atoi(argv[1]), 1) : kRounds;
  MustSucceed(cudaStreamCreate(&the_stream));
  Workloads workloads;
  AddRings(&workloads);
  AddSequences(&workloads);
  AddPrioritized(&workloads);
  void *from, *to;
  MustSucceed(cudaMalloc(&from, kCopied));
  MustSucceed(cudaMalloc(&to, kCopied));
  AddFloors(&workloads, from, to);
  Measure(&workloads, rounds);
  Show(&workloads);
  MustSucceed(cudaFree(from));
  MustSucceed(cudaFree(to));
  return 0;
}
