// Replaces the content of an open page after each new reading. Focus, scroll positions and open details stay. While a viewer fills in a
// form or selects text, the content is not replaced.
"use strict";
const again = Number(document.currentScript.dataset.again) * 1000;
const main = () => document.querySelector("main");
let events, wanted, busy = false;

const touched = (one) => one === document.activeElement || one.checked !== one.defaultChecked || (one.options
  ? [...one.options].some((option) => option.selected !== option.defaultSelected) : one.value !== one.defaultValue);
const filling = () => [...main().querySelectorAll("input, select, textarea")].some(touched)
  || (!getSelection().isCollapsed && main().contains(getSelection().anchorNode));

function way(one) {
  const steps = [];
  for (; one !== main(); one = one.parentElement) steps.unshift([...one.parentElement.children].indexOf(one));
  return steps;
}
const at = (steps) => steps.reduce((one, step) => one && one.children[step], main());

function replace(page) {
  const focus = document.activeElement !== main() && main().contains(document.activeElement) && document.activeElement;
  const steps = focus && way(focus), open = [...main().querySelectorAll("details[open]")].map(way);
  const wide = [...main().querySelectorAll(".wide")].map((one) => one.scrollLeft), [x, y] = [scrollX, scrollY];
  document.title = page.title;
  main().replaceWith(page.querySelector("main"));
  const [said, news] = [document, page].map((one) => one.querySelector("footer span"));
  if (said && news) said.replaceWith(news);
  open.map(at).forEach((one) => one && (one.open = true));
  main().querySelectorAll(".wide").forEach((one, number) => { one.scrollLeft = wide[number] || 0; });
  if (focus) {
    const same = focus.href ? [...main().querySelectorAll("a[href]")].find((one) => one.href === focus.href) : at(steps);
    (same || main()).focus({ preventScroll: true });
  }
  scrollTo(x, y);
}

async function update() {
  if (busy || !wanted || wanted === main().dataset.reading || filling()) return;
  busy = true;
  try {
    const answer = await fetch(location.href);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (answer.status === 401) location.reload();
    else if (page.querySelector("main[data-reading]") && !filling()) replace(page);
  } catch { /* the server does not answer: the next event starts another update */ }
  busy = false;
}

function listen() {
  if (events) events.close();
  if (document.hidden) return; // a browser opens only a few connections to one server, so a hidden page uses none
  events = new EventSource("/events");
  events.onmessage = (event) => { wanted = event.data; update(); };
  events.onerror = () => events.readyState === EventSource.CLOSED && setTimeout(() => filling() || location.reload(), again);
}
document.addEventListener("visibilitychange", listen);
document.addEventListener("focusout", () => setTimeout(update));
listen();
