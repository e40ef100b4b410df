/*
eval_cache.h -- attention of eval with fewer keys: streaming, eviction, edits of the weights. It is
computed here, a row at a time in host memory, with the mathematics of reference.h: any backend can
be asked. Rows count from 0 here, and the sink token's is one of them.
*/
#ifndef EVAL_CACHE_H
#define EVAL_CACHE_H
#include "eval_edit.h"
#include "../metrics.cuh"

// Query i sees rows j < n and j >= i - W. With `cached`, positions are those in the cache: they
// stay as far apart in the window, but to the first n keys query i is at min(i, n + W). A
// layer's key and value depend only on what their own token saw, so one pass gives what
// StreamingLLM computes token by token
struct Stream { bool on = false; int n = 0, W = 0; bool cached = true; };

// Later queries see only `kept` of the first `prompt` rows, those of the highest scores, by
// key/value head
enum Policy { EVICT_streaming, EVICT_knorm, EVICT_observed, EVICT_snapkv, POLICIES };
static const char* const POLICY_NAMES[] = { "streaming", "knorm", "observed", "snapkv" };
enum FirstToken { FIRST_AS_SCORED, FIRST_KEPT, FIRST_DROPPED };
struct Evict {
    bool on = false;
    Policy policy = EVICT_streaming;
    int prompt = 0, kept = 0;
    FirstToken first = FIRST_AS_SCORED;
};
// of streaming; of snapkv (Li et al. 2024), whose window is shorter where the prompt is
enum { EVICT_FIRST = 4, SNAP_WINDOW = 64, SNAP_KERNEL = 5 };
inline int snap_window(const Evict& e) {
    return std::max(1, std::min<int>(SNAP_WINDOW, e.prompt / 4));
}

// a query head as the reference has it, that sees what the run leaves it
struct EvalHead : ref::Head<Attn, Bias, Pe> {
    const Stream& stream; const Evict& evict; const std::vector<Edit>& edits;
    const std::vector<double>& angles; // of the pairs of channels that turn; empty: none does
    const std::vector<char>* kept;               // by row of the prompt; NULL: not decided yet
    int l, skip;
    Host turned;           // the query as the first n keys meet it, and the learned key

    EvalHead(const ref::Head<Attn, Bias, Pe>& head, const Stream& stream, const Evict& evict,
             const std::vector<Edit>& edits, const std::vector<double>& angles, int l, int skip)
        : ref::Head<Attn, Bias, Pe>(head), stream(stream), evict(evict), edits(edits),
          angles(angles), kept(NULL), l(l), skip(skip) {}

    // does the edit mean the weight of key j in row t? In its own never: that would be left empty.
    // The sink token's neither, which is no token
    bool edited(const Edit& e, int t, int j) const {
        return e.place == PLACE_A && j >= skip && j < t && e.layers.has(l) && e.channels.has(h) &&
               e.tokens.has(j - skip + 1);
    }

    bool sees_still(int t, int j) const {
        if (!sees(t, j)) { return false; }
        if (j == s.T) { return true; }
        if (stream.on && j >= stream.n && j < t - stream.W) { return false; }
        if (kept && j < evict.prompt && !(*kept)[j]) { return false; }
        for (auto& e : edits) { if (e.how == EDIT_MASK && edited(e, t, j)) { return false; } }
        return true;
    }

    // how much nearer query t is to the first n keys than it was, and to where it would not turn
    int nearer(int t) const {
        return stream.on && stream.cached ? std::max(0, t - stream.n - stream.W) : 0;
    }

    // q_t, turned back by so many positions
    void turn(int t, int by) {
        turned.assign(q(t), q(t) + s.HS);
        const int half = angles.size();
        for (int i = 0; i < half; i++) {
            const double co = cos(by * angles[i]), si = sin(by * angles[i]);
            const double a = turned[i], b = turned[i + half];
            turned[i] = a * co + b * si;
            turned[i + half] = b * co - a * si;
        }
    }

    acc score_still(int t, int j, int by) const {
        const bool star = j == s.T, learned = star && Bias::column == KEY_COLUMN;
        if (!by || (j >= stream.n && !learned)) { return score(t, j); }
        const float slope = pe_slope<Pe>(s, h);
        const acc bias = star ? acc(0) : attn_bias<Attn, Pe, acc>(s, t - by - j, slope);
        return attn_capped<Attn>(ref::dot(turned.data(), k(j), s.HS) * acc(s.scale) + bias,
                                 acc(s.cap));
    }

    // A (T + 1) <- the weights of query t, 0 where it sees nothing; stat (2) as attention has it
    void weights(int t, Host* A, acc (&stat)[2]) {
        const int by = nearer(t);
        if (by) { turn(t, by); }
        acc m = attn_least<Attn, acc>(), sum = 0;
        A->assign(s.T + 1, 0);
        for (int j = 0; j <= s.T; j++) {
            if (!sees_still(t, j)) { continue; }
            (*A)[j] = score_still(t, j, by);
            m = max_(m, (*A)[j]);
        }
        for (int j = 0; j <= s.T; j++) {
            if (!sees_still(t, j)) { continue; }
            const acc w = attn_term<Attn>((*A)[j], m);
            sum += attn_mass<Attn>(w, acc(s.p));
            (*A)[j] = attn_share<Attn>(w);
        }
        const acc factor = attn_stat<Attn>(stat, m, sum, acc(s.p), attn_alpha<Attn, acc>(s));
        for (auto& w : *A) { w *= factor; }
        for (auto& e : edits) {
            for (int j = 0; j < t && e.place == PLACE_A; j++) {
                if (!edited(e, t, j)) { continue; }
                if (e.how == EDIT_NUMBER) { (*A)[j] = e.value; }
                if (e.how == EDIT_SCALE)  { (*A)[j] *= e.value; }
            }
        }
    }
};

// what the policy thinks of each row of the prompt, for one key/value head: `sums` of the weights
// that its rows had from all queries of the prompt (observed), or from the last of them (snapkv),
// over the heads of the group
inline std::vector<double> evict_scores(const Evict& e, const std::vector<double>& sums,
                                        const EvalHead& head) {
    const int P = e.prompt, window = snap_window(e), newest = e.kept - EVICT_FIRST;
    std::vector<double> score(P);
    auto pooled = [&](int j) {                   // beyond the ends are zeros
        double sum = 0;
        for (int i = j - SNAP_KERNEL / 2; i <= j + SNAP_KERNEL / 2; i++) {
            sum += i >= 0 && i < P - window ? sums[i] : 0;
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

// the rows that stay: the `kept` highest scores; of equals the earlier
inline std::vector<char> evict_choose(const Evict& e, const std::vector<double>& score) {
    std::vector<int> order(e.prompt);
    for (int j = 0; j < e.prompt; j++) { order[j] = j; }
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return score[a] > score[b]; });
    std::vector<char> kept(e.prompt);
    for (int k = 0; k < e.kept; k++) { kept[order[k]] = 1; }
    return kept;
}

// Computes attention of layer l with what the change leaves a query: act_qkv -> act_att, act_stat.
// Adds what every head gave the tokens, one for each sequence and head, to `seen`.
inline void eval_attention(Model* m, int l, const Stream& stream, const Evict& evict,
                           const std::vector<Edit>& edits, std::vector<HeadMetrics>* seen) {
    const AttnShape s = attn_shape(m, l);
    const Arch& c = m->arch;
    const int G = s.NH / s.KV, row = s.NH * s.HS, skip = m->sizes.bias.token;
    const size_t stars = m->sizes.bias.column == LOGIT_COLUMN ? c.NH : (size_t)bias_rows(c) * c.HS;
    const Host qkv = host_read(act_qkv(m, l), (size_t)rows(m) * m->sizes.W);
    const Host k_star = host_read(star_k(m, l), stars);
    const Host v_star = host_read(star_v(m, l), (size_t)bias_rows(c) * c.HS);
    const acc *k_at = k_star.empty() ? NULL : k_star.data();
    const acc *v_at = v_star.empty() ? NULL : v_star.data();
    std::vector<double> angles;
    double length;
    if (layer_turns(m, l)) {
        const bool local = is_local(c, l) && m->turns_local;
        angles = rope_angles(c, local ? c.rope_local : c.rope_base, !local, &length);
    }
    Host att((size_t)rows(m) * row), stat((size_t)rows(m) * s.NH * 2);
    std::vector<ref::HeadSums> given((size_t)s.B * s.NH);
    #pragma omp parallel for schedule(dynamic)
    for (int bg = 0; bg < s.B * s.KV; bg++) {
        const int b = bg / s.KV, g = bg % s.KV;
        std::vector<double> sums(s.T);
        std::vector<char> kept;
        Host A;
        for (int part = 0; part < 2; part++) {   // the prompt, by all heads; what follows it
            const int t0 = part ? evict.prompt : 0, t1 = part ? s.T : evict.prompt;
            for (int h = g * G; h < (g + 1) * G; h++) {
                const ref::Head<Attn, Bias, Pe> plain(qkv.data(), k_at, v_at, b, h, s);
                EvalHead head(plain, stream, evict, edits, angles, l, skip);
                if (part && evict.on && h == g * G) {
                    kept = evict_choose(evict, evict_scores(evict, sums, head));
                }
                if (part && evict.on) { head.kept = &kept; }
                for (int t = t0; t < t1; t++) {
                    const bool counts =
                        evict.policy == EVICT_observed || t >= evict.prompt - snap_window(evict);
                    acc* o = &att[((size_t)b * s.T + t) * row + h * s.HS], st[2];
                    head.weights(t, &A, st);
                    for (int j = 0; j <= s.T; j++) {
                        if (A[j] != 0) { ref::add_times(o, A[j], head.v(j), s.HS); }
                    }
                    for (int j = 0; j < t1 && !part && counts; j++) { sums[j] += std::fabs(A[j]); }
                    const std::vector<double> weights(A.begin(), A.end());
                    given[(size_t)b * s.NH + h].add(weights, t, s.T, skip);
                    memcpy(&stat[(((size_t)b * s.NH + h) * s.T + t) * 2], st, sizeof st);
                }
            }
        }
    }
    host_write(act_att(m, l), att);
    ops::to_device(act_stat(m, l), stat.data(), stat.size() * sizeof(acc));
    const bool column = Bias::column != NO_COLUMN;
    for (auto& sums : given) { seen->push_back(sums.means(s.T - skip, column || skip, column)); }
}
#endif // EVAL_CACHE_H
