// The server's API key, if it requires one. Stored until the tab is closed.

import { recall, remember } from "./memory.js";

const dialog = document.getElementById("key-dialog");
const input = document.getElementById("key");
let asked = null;

/** The header with the key. */
export function shown() {
  const key = recall("sessionStorage", "key");
  return key ? { authorization: `Bearer ${key}` } : {};
}

/** Prompts for a key. Resolves to true if one was entered; concurrent calls share one dialog. */
export function ask() {
  asked ??= new Promise((resolve) => {
    document.getElementById("key-message").textContent = recall("sessionStorage", "key") ? "The key was not accepted." : "";
    input.value = "";
    dialog.addEventListener("close", () => {
      asked = null;
      resolve(dialog.returnValue === "given");
    }, { once: true });
    dialog.returnValue = "";
    dialog.showModal();
  });
  return asked;
}

dialog.querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  remember("sessionStorage", "key", input.value.trim());
  dialog.close("given");
});
document.getElementById("key-cancel").addEventListener("click", () => dialog.close(""));
