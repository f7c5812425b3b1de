// An answer with its attempts: their tokens, and the request in progress.

import { played } from "./server.js";
import { sampler } from "./settings.js";

// The number of attempts to keep.
const MAX_ATTEMPTS = 50;

/** The decoded text of the tokens that is held back as the possible beginning of a stop string. */
function held(tokens) {
  let rest = "";
  for (const { id, text, top } of tokens) {
    const single = top.find((choice) => choice.id === id)?.text;
    if (single !== undefined && !single.includes("\ufffd")) rest += single;
    rest = rest.startsWith(text) ? rest.slice(text.length) : "";
  }
  return rest;
}

export class Answer {
  /** `view` makes what shows the tokens. `changed(what)` is called on events: "begun", "token", "ended", "failed" or "turned". */
  constructor(view, changed) {
    this.text = view((at, choice) => this.pick(at, choice));
    this.changed = changed;
    this.tries = [];
    this.at = -1;
    this.running = null;
    this.message = "";
  }

  get current() { return this.tries[this.at] ?? null; }

  get tokens() { return this.current?.tokens ?? []; }

  get content() { return this.tokens.map((token) => token.text).join(""); }

  /** Generates another answer to a request, after the tokens in `kept`. */
  write(request, kept = [], fresh = false) {
    this.stop();
    this.tries = [...this.tries, { request, tokens: kept }].slice(-MAX_ATTEMPTS);
    this.at = this.tries.length - 1;
    this.text.show(kept);
    return this.run(this.current, fresh);
  }

  /** Continues from another token instead of the sampled one. */
  pick(at, choice) {
    const { request, tokens } = this.current;
    const kept = tokens.slice(0, at);
    // Drop an incomplete character: it is decoded with the tokens that follow.
    const text = held(kept) + choice.text.replace(/\ufffd+$/, "");
    const written = this.write(request, [...kept, { ...choice, text, top: tokens[at].top }]);
    this.text.focus(at);
    return written;
  }

  again() { return this.write(this.current.request, [], true); }

  more() {
    this.current.continues = true;
    return this.run(this.current, false);
  }

  turn(by) {
    this.stop();
    this.at = Math.min(Math.max(this.at + by, 0), this.tries.length - 1);
    this.text.show(this.current.tokens);
    this.changed("turned");
  }

  stop() {
    this.running?.abort();
    this.running = null;
  }

  async run(made, fresh) {
    const running = new AbortController();
    this.running = running;
    const wanted = { ...made.request, ...sampler(fresh) };
    const continued = made.tokens.map((token) => token.id);
    if (continued.length) wanted.continued = continued;
    Object.assign(made, { seed: wanted.seed, finish: null, fresh: 0, since: performance.now(), seconds: 0 });
    this.message = "";
    this.changed("begun");
    try {
      for await (const event of played(wanted, running.signal)) {
        if (running.signal.aborted) break;
        this.take(made, event);
      }
      if (!running.signal.aborted && !made.finish) throw new Error("The answer broke off: the server ended the connection.");
    } catch (error) {
      if (!running.signal.aborted) {
        made.finish = "failed";
        this.message = error instanceof TypeError ? "The answer broke off: the server is gone." : error.message;
      }
    }
    made.finish ??= "stopped";
    if (this.running === running) this.running = null;
    // A newer attempt reports its own events.
    if (this.running !== null) return;
    if (made.finish === "failed" && made.fresh === 0) this.forget(made);
    this.changed(made.finish === "failed" ? "failed" : "ended");
  }

  /** Discards an attempt that the server rejected and shows the previous one. */
  forget(made) {
    const before = this.tries.filter((other) => other !== made);
    if (this.current !== made || made.continues || before.length === 0) return;
    this.tries = before;
    this.at = before.length - 1;
    this.text.show(this.current.tokens);
  }

  take(made, event) {
    if (event.error) throw new Error(event.error.message);
    if (event.begin) this.begin(made, event.begin);
    if (event.token) {
      made.tokens.push(event.token);
      made.fresh += 1;
      made.seconds = (performance.now() - made.since) / 1000;
      this.text.append(event.token, made.tokens.length - 1);
      this.changed("token");
    }
    if (event.rest) this.text.complete(made.tokens, event.rest);
    if (event.end) Object.assign(made, { finish: event.end.finish, seconds: event.end.seconds });
  }

  /** Shows the tokens that are continued by their parts, which follow from all tokens before them. */
  begin(made, { prompt_tokens: asked, parts }) {
    made.asked = asked;
    if (!parts?.length) return;
    made.tokens.forEach((token, at) => { token.parts = parts[at]; });
    const focused = document.activeElement;
    this.text.show(made.tokens);
    if (!focused.isConnected) this.text.focus(made.tokens.length - 1);
  }
}
