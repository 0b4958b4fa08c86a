window.ui = SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  persistAuthorization: true,
  tryItOutEnabled: true,
  displayRequestDuration: true,
  filter: true,
  defaultModelsExpandDepth: 0,
  syntaxHighlight: { activated: true },
  presets: [SwaggerUIBundle.presets.apis],
  layout: "BaseLayout",
});
