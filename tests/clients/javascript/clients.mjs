// JavaScript's clients against the real server: openai, @anthropic-ai/sdk, ollama, and the AI SDK over two providers.
//
// `node clients.mjs --binary target/debug/emberlm --model RUN` in a folder with the packages of `package.json`, as
// `cargo xtask test-clients` runs it. RUN is of a byte tokenizer.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic from "@anthropic-ai/sdk";
import { embed, generateText, jsonSchema, Output, streamText, tool } from "ai";
import { Ollama } from "ollama";
import OpenAI from "openai";

// As Hermes writes calls; short, since the model has a context of 512 bytes.
const TEMPLATE = `{% for tool in tools or [] %}{{ tool.function.name }}
{% endfor %}{% for m in messages %}[{{ m.role }}]{{ m.content or '' }}{% for call in m.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}
{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}`;
const PARAMETERS = {
  type: "object",
  properties: { animal: { enum: ["🐢", "hare"] }, steps: { type: "integer", minimum: 0, maximum: 99 } },
  required: ["animal", "steps"],
  additionalProperties: false,
};
const QUESTION = "3 and 4 make";
const MESSAGES = [{ role: "user", content: QUESTION }];

const checks = [];
const check = (name, run) => checks.push([name, run]);

function checkFound(found) {
  assert.ok(["🐢", "hare"].includes(found.animal) && found.steps >= 0 && found.steps <= 99, JSON.stringify(found));
}

async function collected(parts, text) {
  let all = "";
  for await (const part of parts) all += text(part) ?? "";
  return all;
}

check("openai: a chat, a stream, two rounds with a tool, embeddings and an error", async ({ url, model }) => {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
  const options = { model, messages: MESSAGES, temperature: 0, max_completion_tokens: 40 };
  const whole = await client.chat.completions.create(options);
  const parts = await client.chat.completions.create({ ...options, stream: true });
  assert.equal(await collected(parts, (part) => part.choices[0]?.delta.content), whole.choices[0].message.content);
  const tools = [{ type: "function", function: { name: "find", parameters: PARAMETERS } }];
  const called = await client.chat.completions.create({
    ...options, tools, tool_choice: "required", parallel_tool_calls: false, max_completion_tokens: 200,
  });
  const message = called.choices[0].message;
  checkFound(JSON.parse(message.tool_calls[0].function.arguments));
  const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "there" };
  await client.chat.completions.create({ ...options, tools, messages: [...MESSAGES, message, result] });
  const response = await client.responses.create({ model, input: QUESTION, temperature: 0, max_output_tokens: 40 });
  assert.equal(response.output_text, whole.choices[0].message.content);
  const vectors = await client.embeddings.create({ model, input: [QUESTION, "said the"] });
  assert.equal(vectors.data.length, 2);
  await assert.rejects(client.chat.completions.create({ ...options, model: "nobody" }), OpenAI.NotFoundError);
});

check("@anthropic-ai/sdk: an answer, a stream, two rounds with a tool, and an error", async ({ url, model }) => {
  const client = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
  const options = { model, messages: MESSAGES, max_tokens: 40, temperature: 0 };
  const whole = await client.messages.create(options);
  const stream = client.messages.stream(options);
  assert.deepEqual((await stream.finalMessage()).content, whole.content);
  const tools = [{ name: "find", input_schema: PARAMETERS }];
  const choice = { type: "any", disable_parallel_tool_use: true };
  const called = await client.messages.create({ ...options, tools, tool_choice: choice, max_tokens: 200 });
  checkFound(called.content[0].input);
  const result = { type: "tool_result", tool_use_id: called.content[0].id, content: "there" };
  const rounds = [...MESSAGES, { role: "assistant", content: called.content }, { role: "user", content: [result] }];
  await client.messages.create({ ...options, tools, messages: rounds });
  const counted = await client.messages.countTokens({ model, messages: MESSAGES });
  assert.ok(counted.input_tokens > QUESTION.length);
  await assert.rejects(client.messages.create({ ...options, model: "nobody" }), Anthropic.NotFoundError);
});

check("ollama: a chat, a stream, an object, the models, and an error", async ({ url, model }) => {
  const client = new Ollama({ host: url });
  const options = { model, messages: MESSAGES, options: { temperature: 0, num_predict: 40 } };
  const whole = await client.chat(options);
  const parts = await client.chat({ ...options, stream: true });
  assert.equal(await collected(parts, (part) => part.message.content), whole.message.content);
  const object = await client.chat({ ...options, format: PARAMETERS, options: { temperature: 0, num_predict: 200 } });
  checkFound(JSON.parse(object.message.content));
  assert.deepEqual((await client.list()).models.map((listed) => listed.name), [model]);
  assert.ok((await client.show({ model })).capabilities.includes("completion"));
  await assert.rejects(client.chat({ ...options, model: "nobody" }), /nobody/);
});

const PROVIDERS = {
  "@ai-sdk/openai-compatible": (url) => {
    const provider = createOpenAICompatible({ name: "emberlm", baseURL: `${url}/v1`, apiKey: "none", supportsStructuredOutputs: true });
    return { chat: (model) => provider.chatModel(model), embedding: (model) => provider.embeddingModel(model) };
  },
  "@ai-sdk/openai": (url) => {
    const provider = createOpenAI({ baseURL: `${url}/v1`, apiKey: "none" });
    return { chat: (model) => provider(model), embedding: (model) => provider.embedding(model) };
  },
};

for (const [name, connect] of Object.entries(PROVIDERS)) {
  check(`ai over ${name}: a text, a stream, a tool, an object, embeddings and an error`, async ({ url, model }) => {
    const provider = connect(url);
    const options = { model: provider.chat(model), prompt: QUESTION, temperature: 0, maxOutputTokens: 40, maxRetries: 0 };
    const whole = await generateText(options);
    assert.equal(await collected(streamText(options).textStream, (text) => text), whole.text);
    const find = tool({ description: "Finds an animal.", inputSchema: jsonSchema(PARAMETERS), execute: async () => "there" });
    const called = await generateText({ ...options, tools: { find }, toolChoice: "required", maxOutputTokens: 400 });
    checkFound(called.toolCalls[0].input);
    const output = Output.object({ schema: jsonSchema(PARAMETERS) });
    checkFound((await generateText({ ...options, output, maxOutputTokens: 200 })).output);
    const { embedding } = await embed({ model: provider.embedding(model), value: QUESTION });
    assert.equal(embedding.length, 64);
    await assert.rejects(generateText({ ...options, model: provider.chat("nobody") }), /nobody/);
  });
}

async function main() {
  const { values } = parseArgs({ options: { binary: { type: "string" }, model: { type: "string" } } });
  const folder = mkdtempSync(join(tmpdir(), "emberlm-clients-"));
  const template = join(folder, "template.jinja");
  writeFileSync(template, TEMPLATE);
  const command = ["serve", values.model, "--port", "0", "--log", "none", "--chat-template", template];
  const server = spawn(values.binary, command, { stdio: ["ignore", "pipe", "inherit"] });
  const [url] = await new Promise((resolve) => {
    const lines = [];
    createInterface({ input: server.stdout }).once("line", (line) => resolve([line.trim()])).once("close", () => resolve(lines));
  });
  let failed = 0;
  for (const [name, run] of checks) {
    try {
      await run({ url, model: basename(values.model) });
      console.log(`ok      ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED  ${name}\n${error?.stack ?? error}`);
    }
  }
  server.kill("SIGTERM");
  await new Promise((resolve) => server.once("exit", resolve));
  rmSync(folder, { recursive: true });
  console.log(`${checks.length - failed} passed, ${failed} failed`);
  process.exit(failed === 0 ? 0 : 1);
}

await main();
