/*
eval_cache.h -- attention of eval with fewer keys: streaming, eviction, edits of the weights.

It is computed here, a row at a time in host memory, with the mathematics of reference.h, so it
works with every backend. Rows count from 0, and the sink token's is one of them. Start with
eval_attention.
*/
#ifndef EVAL_CACHE_H
#define EVAL_CACHE_H
#include "eval_edit.h"
#include "../core/measure.h"
#include "../metrics.cuh"
#include "sink_at.h"

// Query i sees rows j < n and j >= i - W. With `cached`, positions are those in the cache: they
// stay as far apart in the window, but to the first n keys query i is at min(i, n + W). A
// layer's key and value depend only on what their own token saw, so one pass gives what
// StreamingLLM computes token by token.
struct Stream {
    bool on = false;
    int n = 0;
    int W = 0;
    bool cached = false;
};

// Later queries see only `kept` of the first `prompt` rows, those of the highest scores, by
// key/value head.
enum Policy { EVICT_streaming, EVICT_knorm, EVICT_observed, EVICT_snapkv };
static const char* const POLICY_NAMES[] = { "streaming", "knorm", "observed", "snapkv" };
enum FirstToken { FIRST_AS_SCORED, FIRST_KEPT, FIRST_DROPPED };
struct Evict {
    bool on = false;
    Policy policy = EVICT_streaming;
    int prompt = 0;
    int kept = 0;
    FirstToken first = FIRST_AS_SCORED;
};

enum { EVICT_FIRST = 4 };                        // rows that `streaming` keeps at the beginning
enum { SNAP_WINDOW = 64, SNAP_KERNEL = 5 };      // of snapkv (Li et al. 2024)

// Returns the queries of the window of snapkv, fewer where the prompt is short.
inline int snap_window(const Evict& e) {
    const int window = std::min<int>(SNAP_WINDOW, e.prompt / 4);
    return std::max(1, window);
}

// What a run leaves of the keys that a query sees, and of their weights.
struct KeysLeft {
    Stream stream;
    Evict evict;
    std::vector<Edit> edits;
};

// The same in a layer.
struct LayerLeft {
    const Stream& stream;
    const Evict& evict;
    const std::vector<Edit>& edits;
    int l;
    int skip;                                    // rows before the first token's
    std::vector<double> angles;                  // of the pairs of channels that turn, or empty
};

// A query head as the reference has it, which sees what the run leaves it.
struct EvalHead : Head<Bias, const acc>, LayerLeft {
    const std::vector<char>& kept;               // by row of the prompt; empty: not decided yet
    Host turned = {};      // (HS) the query as the first n keys and the learned key meet it

    // Tells whether the edit names the weight of key j in row t, by its key or, of EDIT_SELF, its
    // query; token 0 is the extra key, or the sink token. It never names that of the query's own
    // key, because the row would be empty.
    bool edited(const Edit& e, int t, int j) const {
        const bool extra = j == s.T;
        const bool weight = e.place == PLACE_A && (extra || j < t) && e.layers.has(l);
        if (!weight || !e.channels.has(h)) { return false; }
        if (e.how == EDIT_SELF) { return t >= skip && e.names(t - skip + 1); }
        return e.names(extra ? 0 : j - skip + 1);
    }

    // Tells whether query t sees key j and the run has not taken the key away.
    bool sees_still(int t, int j) const {
        if (!sees(t, j)) { return false; }
        if (stream.on && j >= stream.n && j < t - stream.W) { return false; }
        if (!kept.empty() && j < evict.prompt && !kept[j]) { return false; }
        for (auto& e : edits) {
            const bool hides = e.how == EDIT_MASK || e.how == EDIT_SELF;
            if (hides && edited(e, t, j)) { return false; }
        }
        return true;
    }

    // Returns by how many positions query t is nearer to the first n keys than it was. The learned
    // key stands where the query does not turn, and comes as much nearer.
    int nearer(int t) const {
        if (!stream.cached) { return 0; }
        return std::max(0, t - stream.n - stream.W);
    }

    // Sets `turned` to q_t, turned back by so many positions.
    void turn(int t, int by) {
        turned.assign(q(t), q(t) + s.HS);
        const int half = angles.size();
        for (int i = 0; i < half; i++) {
            const double co = cos(by * angles[i]);
            const double si = sin(by * angles[i]);
            const double a = turned[i];
            const double b = turned[i + half];
            turned[i] = a * co + b * si;
            turned[i + half] = b * co - a * si;
        }
    }

    // Returns the score of query t, which is nearer by so many positions, and key j.
    acc score_still(int t, int j, int by) const {
        const bool extra = j == s.T;
        const bool learned = extra && Bias::extra == KEY_EXTRA;
        if (!by || (j >= stream.n && !learned)) {
            return ref::score<Attn, Pe>(*this, t, j);
        }
        const acc product = ref::dot(turned.data(), k(j), s.HS);
        return attn_score<Attn, Pe>(*this, product, pe_slope<Pe>(s, h), t - by, j);
    }

    // Sets A (T + 1) to the weights of query t, 0 where it sees nothing. Returns its stat, as
    // attention has it.
    AttnStat<acc> weights(int t, Host* A) {
        const int by = nearer(t);
        if (by) { turn(t, by); }
        acc m = attn_initial_max<Attn, acc>();
        acc sum = 0;
        std::vector<int> keys;                   // that it sees
        A->assign(s.T + 1, 0);
        for (int j = 0; j <= s.T; j++) {
            if (!sees_still(t, j)) { continue; }
            keys.push_back(j);
            (*A)[j] = score_still(t, j, by);
            m = max_(m, (*A)[j]);
        }
        for (int j : keys) { sum += attn_mass<Attn>(attn_term<Attn>((*A)[j], m), acc(s.p)); }
        const acc alpha = attn_alpha_of<Attn, acc>(s, t);
        const AttnStat<acc> st = attn_stat<Attn>(m, sum, acc(s.p), alpha);
        for (int j : keys) { (*A)[j] = attn_weight<Attn>((*A)[j], st, s.clip); }
        edit(t, A);
        return st;
    }

    // Replaces or scales the weights of query t that the edits name.
    void edit(int t, Host* A) const {
        for (auto& e : edits) {
            for (int j = 0; j <= s.T; j++) {
                if (!edited(e, t, j)) { continue; }
                if (e.how == EDIT_NUMBER) { (*A)[j] = e.value; }
                if (e.how == EDIT_SCALE)  { (*A)[j] *= e.value; }
            }
        }
    }
};

// Scores each row of the prompt by the policy, for one key/value head. `sums` are the weights that
// its rows had from all queries of the prompt (observed), or from the last of them (snapkv), over
// the heads of the group.
inline std::vector<double> evict_scores(const Evict& e, const std::vector<double>& sums,
                                        const EvalHead& head) {
    const int P = e.prompt;
    const int window = snap_window(e);
    const int newest = e.kept - EVICT_FIRST;
    std::vector<double> score(P);

    auto pooled = [&](int j) {                   // beyond the ends are zeros
        const int side = SNAP_KERNEL / 2;
        double sum = 0;
        for (int i = j - side; i <= j + side; i++) {
            if (i >= 0 && i < P - window) { sum += sums[i]; }
        }
        return sum / SNAP_KERNEL;
    };
    auto norm_of = [&](int j) { // in steps of 1e-5: equal keys are equal however they have turned
        const double squares = ref::dot(head.k(j), head.k(j), head.s.HS);
        return nearbyint(1e5 / 2 * log(squares));
    };
    auto readers = [&](int j) { // queries of the prompt that see row j
        int count = 0;
        for (int t = 0; t < P; t++) { count += head.sees(t, j); }
        return count;
    };

    for (int j = 0; j < P; j++) {
        switch (e.policy) {
            case EVICT_streaming: score[j] = j < EVICT_FIRST || j >= P - newest; break;
            case EVICT_knorm:     score[j] = -norm_of(j); break;
            case EVICT_observed:  score[j] = sums[j] / readers(j); break;
            default:              score[j] = j < P - window ? pooled(j) : INFINITY;
        }
    }
    if (e.first == FIRST_KEPT)    { score[head.skip] = INFINITY; }
    if (e.first == FIRST_DROPPED) { score[head.skip] = -INFINITY; }
    if (head.skip) { score[0] = INFINITY; } // a sink token is no token
    return score;
}

// Returns 1 for the rows that stay: the `kept` highest scores, and of equal ones the earlier.
inline std::vector<char> evict_choose(const Evict& e, const std::vector<double>& score) {
    const auto order = largest_first(e.prompt, [&](int j) { return score[j]; });
    std::vector<char> kept(e.prompt);
    for (int k = 0; k < e.kept; k++) { kept[order[k]] = 1; }
    return kept;
}

// Returns the angles that layer l turns q and k by per position, none if it does not turn them.
inline std::vector<double> layer_angles(const Model* m, int l) {
    if (!layer_rope(m, l)) { return {}; }
    const Arch& c = m->arch;
    const bool local = is_local(c, l) && m->rope_local;
    const double base = local ? c.rope_local : c.rope_base;
    double length;
    return rope_angles(c, base, !local, &length);
}

// Attention of one layer in host memory: what it reads and what it computes.
struct EvalAttention : LayerLeft {
    AttnShape s;
    Host qkv;
    Host k_star;
    Host v_star;
    Host att;                                    // (B, T, NH, HS)
    Host stat;                                   // (B, NH, T, 2)
    std::vector<ref::HeadSums> given;            // (B, NH)

    EvalAttention(const Model* m, const LayerLeft& left) : LayerLeft(left) {
        const AttentionHost x = attention_host(m, l);
        s = x.s;
        qkv.assign(x.qkv.begin(), x.qkv.end());
        k_star.assign(x.extra.begin(), x.extra.end());
        v_star = host_read(extra_v(m, l), (size_t)bias_rows(m->arch) * s.HS);
        att.resize((size_t)rows(m) * s.NH * s.HS);
        stat = x.stat;
        given.resize((size_t)s.B * s.NH);
    }

    // Returns head h of sequence b, which sees what is kept of the prompt.
    EvalHead head_of(int b, int h, const std::vector<char>& kept) const {
        const Head<Bias, const acc> plain(qkv.data(), { k_star.data(), v_star.data() }, b, h, s);
        return { plain, *this, kept };
    }

    // Computes query t of a head of sequence b. A becomes its weights.
    void query(EvalHead* head, int b, int t, Host* A) {
        acc* out = &att[head_at(b, t, head->h, s)];
        *stat_of(stat.data(), b, t, head->h, s) = head->weights(t, A);
        for (int j = 0; j <= s.T; j++) {
            if ((*A)[j] != 0) { ref::add_times(out, (*A)[j], head->v(j), s.HS); }
        }
        given[b * s.NH + head->h].add(std::vector<double>(A->begin(), A->end()), t, s.T, skip);
    }

    // Tells whether the weights of query t count for what stays.
    bool counts(int t) const {
        return evict.policy == EVICT_observed || t >= evict.prompt - snap_window(evict);
    }

    // Computes all heads of sequence b that read key/value head g: the prompt, then what follows.
    void group(int b, int g) {
        const int G = s.NH / s.KV;
        std::vector<double> sums(s.T);
        std::vector<char> kept;
        Host A;
        const auto queries = [&](int from, int to) {
            for (int h = g * G; h < (g + 1) * G; h++) {
                EvalHead head = head_of(b, h, kept);
                for (int t = from; t < to; t++) {
                    query(&head, b, t, &A);
                    if (!counts(t)) { continue; }
                    for (int j = 0; j < evict.prompt; j++) { sums[j] += std::fabs(A[j]); }
                }
            }
        };
        queries(0, evict.prompt);
        if (evict.on) {
            kept = evict_choose(evict, evict_scores(evict, sums, head_of(b, g * G, kept)));
        }
        queries(evict.prompt, s.T);
    }
};

// Computes attention of layer l with what the change leaves a query: act_qkv -> act_att, act_stat.
// Adds what every head gave the tokens, one for each sequence and head, to `seen`.
inline void eval_attention(Model* m, int l, const KeysLeft& left, std::vector<HeadMetrics>* seen) {
    EvalAttention a(m, { left.stream, left.evict, left.edits, l, sink_rows(m),
                         layer_angles(m, l) });
    const int KV = a.s.KV;
    #pragma omp parallel for schedule(dynamic)
    for (int bg = 0; bg < a.s.B * KV; bg++) {
        a.group(bg / KV, bg % KV);
    }

    host_write(act_att(m, l), a.att);
    copy_to_device(act_stat(m, l), a.stat);

    const int tokens = a.s.T - a.skip;
    const size_t first = seen->size();
    const bool has_extra = Bias::extra && !a.s.without_extra;
    for (auto& sums : a.given) {
        seen->push_back(sums.means(tokens, has_extra || a.skip, has_extra));
    }
    for (int b = 0; b < a.s.B; b++) {
        scale_to_seen(m, l, &(*seen)[first + (size_t)b * a.s.NH]);
    }
}
#endif // EVAL_CACHE_H
