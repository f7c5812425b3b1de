// Elements of the page.

/** Creates an element with properties and children, which are elements or texts. */
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/** Creates a bar of a length between 0 and 1. */
export function bar(share) {
  const element = make("span", { className: "bar" });
  element.style.setProperty("--share", Math.min(Math.max(share, 0), 1));
  return element;
}
