// Requests to this page's server.

import * as key from "./key.js";

async function ask(path, options = {}) {
  for (;;) {
    let answer;
    try {
      answer = await fetch(path, { ...options, cache: "no-store", headers: { ...options.headers, ...key.shown() } });
    } catch (error) {
      throw error.name === "AbortError" ? error : new Error("The server does not answer.");
    }
    if (answer.ok) return answer;
    if (answer.status === 401 && (await key.ask())) continue;
    throw new Error(await refusal(answer));
  }
}

/** The server's error message, or a generic one. */
async function refusal(answer) {
  try {
    return (await answer.json()).error.message;
  } catch {
    return `The server answered ${answer.status}.`;
  }
}

/** The served models. */
export async function models() {
  return (await (await ask("api/models")).json()).models;
}

const post = (path, request, signal) => ask(path, {
  method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(request), signal,
});

/** The answer to a request. */
export async function posted(path, request, signal) {
  return (await post(path, request, signal)).json();
}

/** Yields the events of an answer as they arrive. Closing the generator cancels the answer. */
export async function* played(request, signal) {
  const answer = await post("api/play", request, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data:")) yield JSON.parse(line.slice("data:".length));
    }
  }
}
