/** Guards servlets: Spring Boot, Jakarta EE, Jetty, Tomcat. Needs the servlet API 6. */
package dev.weir.client.servlet;
