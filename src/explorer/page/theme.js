// The colour theme, set before the page is first drawn. It is the one thing that the page stores.
"use strict";
{
  const NAME = "weir-theme";
  const root = document.documentElement;
  const stored = () => {
    try {
      return localStorage.getItem(NAME) ?? "auto";
    } catch {
      return "auto";
    }
  };
  const use = (theme) => {
    root.dataset.theme = theme;
  };
  use(stored());
  document.addEventListener("DOMContentLoaded", () => {
    const select = document.getElementById("theme");
    select.value = stored();
    select.addEventListener("change", () => {
      use(select.value);
      try {
        if (select.value === "auto") localStorage.removeItem(NAME);
        else localStorage.setItem(NAME, select.value);
      } catch {
        // Without storage it lasts as long as the page.
      }
    });
  });
}
