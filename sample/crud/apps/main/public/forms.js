// Sends a form once: the second click of a double click, or of an impatient visitor with a
// slow network, would buy a second piece. The form is pale meanwhile. The page that answers
// puts the focus on the first wrong field.
const sent = new Set(); // live.js marks its own forms
const unreported = 10000; // ms until a form can be sent again in a browser that does not report a stop

addEventListener("submit", (event) => {
  if (event.defaultPrevented) return; // live.js has sent it
  if (sent.has(event.target)) event.preventDefault();
  else if (!window.navigation) setTimeout(free, unreported);
  sent.add(event.target);
  event.target.setAttribute("aria-busy", "true");
});
addEventListener("pageshow", free); // the visitor came back
window.navigation?.addEventListener("navigateerror", free); // or has stopped the browser

// free lets the forms be sent again.
function free() {
  for (const form of sent) form.removeAttribute("aria-busy");
  sent.clear();
}

document.querySelector("[aria-invalid]")?.focus();
