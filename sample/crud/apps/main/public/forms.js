// Sends a form once: the second click of a double click, or of an impatient visitor with a
// slow network, would buy a second piece. The form is pale meanwhile. The page that answers
// puts the focus on the first wrong field.
const unreported = 10000; // ms until a form can be sent again in a browser that does not report a stop

addEventListener("submit", (event) => {
  if (event.defaultPrevented) return; // live.js has sent it
  if (event.target.getAttribute("aria-busy")) event.preventDefault();
  else if (!window.navigation) setTimeout(free, unreported);
  event.target.setAttribute("aria-busy", "true");
});
addEventListener("pageshow", free); // the visitor came back
window.navigation?.addEventListener("navigateerror", free); // or has stopped the browser

// free lets all forms be sent again.
function free() {
  for (const form of document.querySelectorAll("form[aria-busy]")) form.removeAttribute("aria-busy");
}

document.querySelector("[aria-invalid]")?.focus();
