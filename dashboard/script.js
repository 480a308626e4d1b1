// Replaces the content of an open page after each new reading. Focus, scroll positions and open details stay. While a viewer fills in a
// form, selects text or presses a button of the mouse, the content is not replaced.
"use strict";
const reloadAfter = Number(document.currentScript.dataset.again) * 1000;
const main = () => document.querySelector("main");
let events, newestReading, busy = false, pressed = false;

const isTouched = (field) => field === document.activeElement || field.checked !== field.defaultChecked || (field.options
  ? [...field.options].some((option) => option.selected !== option.defaultSelected) : field.value !== field.defaultValue);
const isInUse = () => pressed || [...main().querySelectorAll("input, select, textarea")].some(isTouched)
  || (!getSelection().isCollapsed && main().contains(getSelection().anchorNode));

// The path of an element: from `main` down, the index of each child.
function pathOf(element) {
  const path = [];
  for (; element !== main(); element = element.parentElement) path.unshift([...element.parentElement.children].indexOf(element));
  return path;
}
const elementAt = (path) => path.reduce((element, index) => element && element.children[index], main());

function replace(page) {
  const focus = document.activeElement !== main() && main().contains(document.activeElement) && document.activeElement;
  const focusPath = focus && pathOf(focus), openPaths = [...main().querySelectorAll("details[open]")].map(pathOf);
  const scrolled = [...main().querySelectorAll(".wide")].map((element) => element.scrollLeft), [x, y] = [scrollX, scrollY];
  document.title = page.title;
  main().replaceWith(page.querySelector("main"));
  const [oldFooter, newFooter] = [document, page].map((parent) => parent.querySelector("footer span"));
  if (oldFooter && newFooter) oldFooter.replaceWith(newFooter);
  openPaths.map(elementAt).forEach((details) => details && (details.open = true));
  main().querySelectorAll(".wide").forEach((element, index) => { element.scrollLeft = scrolled[index] || 0; });
  if (focus) {
    const successor = focus.href
      ? [...main().querySelectorAll("a[href]")].find((link) => link.href === focus.href) : elementAt(focusPath);
    (successor || main()).focus({ preventScroll: true });
  }
  scrollTo(x, y);
}

async function update() {
  if (busy || !newestReading || newestReading === main().dataset.reading || isInUse()) return;
  busy = true;
  try {
    const answer = await fetch(location.href);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (answer.status === 401) location.reload();
    else if (page.querySelector("main[data-reading]") && !isInUse()) replace(page);
  } catch { /* the server does not answer: the next event starts another update */ }
  busy = false;
}

function listen() {
  if (events) events.close();
  if (document.hidden) return; // a browser opens only a few connections to one server, so a hidden page uses none
  events = new EventSource("/events");
  events.onmessage = (event) => { newestReading = event.data; update(); };
  events.onerror = () => events.readyState === EventSource.CLOSED && setTimeout(() => isInUse() || location.reload(), reloadAfter);
}
document.addEventListener("visibilitychange", listen);
document.addEventListener("focusout", () => setTimeout(update));
document.addEventListener("pointerdown", (event) => { pressed = event.button === 0; });
for (const end of ["pointerup", "pointercancel"]) document.addEventListener(end, () => { pressed = false; setTimeout(update); });
listen();
