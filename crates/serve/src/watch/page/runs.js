// The state of runs, read from their events.

/** A run: its data points by metric. */
export class Run {
  constructor(name) {
    this.name = name;
    this.status = null;
    this.sweep = null;
    this.tags = [];
    this.note = "";
    this.settings = null;
    this.file = "";
    this.offset = 0;
    this.clear();
  }

  clear() {
    this.steps = [];
    this.evaluations = [];
    this.paces = [];
    this.samples = [];
    this.norms = [];
    this.skipped = 0;
    this.planned = null;
    this.floor = null;
    this.backend = null;
    this.metrics = [];
    this.readings = new Map();
    this.clock = null;
    this.seconds = 0;
  }

  take(event) {
    this.read(event);
    switch (event.event) {
      case "begun":
        this.planned = event.steps;
        this.floor = event.floor ?? this.floor;
        this.backend = event.backend;
        if (event.metrics) this.metrics = event.metrics;
        this.clock = event.time;
        this.seconds = this.paces.at(-1)?.seconds ?? 0;
        break;
      case "step": this.steps.push(event); break;
      case "norms": this.norms.push(event); break;
      case "skipped": this.skipped += 1; break;
      case "evaluation": this.evaluations.push(event); break;
      case "sample": this.samples.push(event); break;
      case "pace":
        if (this.clock !== null) this.seconds += Math.max(event.time - this.clock, 0);
        this.clock = event.time;
        this.paces.push({ ...event, seconds: this.seconds });
        break;
    }
  }

  /** Stores the metric values of an event by phase and name. */
  read(event) {
    const phase = { step: "training", pace: "training", evaluation: "validation" }[event.event];
    if (!phase) return;
    for (const [name, read] of Object.entries({ ...event, ...event.metrics })) {
      if (typeof read !== "number" && read !== null) continue;
      const key = `${phase} ${name}`;
      if (!this.readings.has(key)) this.readings.set(key, []);
      this.readings.get(key).push([event.step, read]);
    }
  }

  /** Fetches the run's settings once they are available. */
  async configure() {
    if (this.settings) return;
    const { settings } = await get(`api/settings?${new URLSearchParams({ run: this.name })}`);
    if (Object.keys(settings).length) this.settings = settings;
  }

  get step() {
    return Math.max(this.steps.at(-1)?.step ?? 0, this.evaluations.at(-1)?.step ?? 0);
  }

  get best() {
    return this.evaluations.reduce((best, e) => (e.loss !== null && (best === null || e.loss < best) ? e.loss : best), null);
  }

  /** The position of a step along the axis; null if unknown. */
  place(step, along) {
    if (along === "step") return step;
    const [known, key] = along === "tokens" ? [this.steps, "tokens"] : [this.paces, "seconds"];
    let [low, high] = [0, known.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (known[middle].step < step) low = middle + 1; else high = middle;
    }
    if (low === known.length) return known.at(-1)?.[key] ?? null;
    const [from, start] = low ? [known[low - 1].step, known[low - 1][key]] : [0, 0];
    const share = (step - from) / Math.max(known[low].step - from, 1);
    return start + share * (known[low][key] - start);
  }

  /** Fetches new events. Resolves to true if there were any. */
  async follow() {
    let news = false;
    for (let more = true; more;) {
      const query = new URLSearchParams({ run: this.name, file: this.file, offset: this.offset });
      const answer = await get(`api/events?${query}`);
      if (answer.file !== this.file) {
        this.clear();
        news = true;
      }
      answer.events.forEach((event) => this.take(event));
      news ||= answer.events.length > 0;
      [this.file, this.offset, more] = [answer.file, answer.offset, answer.more];
    }
    return news;
  }
}

/** Fetches JSON from this page's server. */
export async function get(path) {
  const answer = await fetch(path, { cache: "no-store" });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}
